"""How many replicas a recorded load gets, by SpotRelay's rule, by SkyServe's own and by a fixed number.

Only the number is replayed, with the time that a replica takes to start: no market, and no replica is lost.
SpotRelay's rule is the production code, `spotrelay.plane.serving.autoscaling`, with what CloudWatch would
have shown. SkyServe's is written down here anew, from its documentation.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from math import ceil
from pathlib import Path

from rich import box
from rich.table import Table

from lab.replay.ports import moment
from spotrelay.plane.core.rows import ScaleRequest
from spotrelay.plane.core.scaling import Load, Scaling
from spotrelay.plane.serving import autoscaling as production

TICK_S, MINUTE_S = 60, 60
"""SpotRelay looks each minute, at what the load balancer says of whole minutes."""

PUBLISHED_S = 60
"""From a minute's end until CloudWatch shows all of it."""

DECISION_S, AT_ZERO_S = 20, 5
"""How often SkyServe decides."""

LONGEST_S = 366 * 86_400


class LoadError(ValueError):
    """A file that isn't a load: which, where, what it should be."""


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """What came of one rule."""

    rule: str
    rejected: float
    """Share of the requests that found no replica: the load balancer answers 503."""
    waited_s: float
    """On average, by the others, because those that served had too many. A replica serves its target, and no
    more."""
    waited_most_s: float
    cost: float
    """Replicas that ran, on average."""
    most: int
    changes: int
    """How often the number changed."""


def read(path: Path) -> list[float]:
    """Requests a second, second by second, of a CSV file: since when (seconds), and how many from then on.

    Raises:
        LoadError: it can't be read, or isn't that.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if row and not row[0].lstrip().startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"--load {path}: can't be read: {error}") from error
    known: list[tuple[float, float]] = []
    for number, row in enumerate(rows):
        try:
            at, rate = map(float, row)
        except ValueError:
            if number == 0:
                continue  # a heading
            raise LoadError(
                f"--load {path}: expected two numbers, seconds and requests a second, got {row}"
            ) from None
        is_later = not known or at > known[-1][0]
        if not (math.isfinite(at) and is_later and 0 <= rate < math.inf and 0 <= at <= LONGEST_S):
            raise LoadError(f"--load {path}: expected seconds that rise, and requests a second, got {row}")
        known.append((at, rate))
    if len(known) < 2:
        raise LoadError(f"--load {path}: expected at least two rows: the last one says when it ends")
    found: list[float] = []
    for (at, rate), (end, _) in pairwise(known):
        found += [rate] * (round(end - known[0][0]) - round(at - known[0][0]))
    return found


Rule = Callable[[int, int], int]
"""(second, replicas that serve) → replicas wanted from then on."""


def spotrelay(load: Sequence[float], scaling: Scaling) -> Rule:
    """The production rule: every minute, by the minutes that CloudWatch knows."""
    held = ScaleRequest(scaling.min_replicas, None)
    minutes = [sum(load[at : at + MINUTE_S]) / MINUTE_S for at in range(0, len(load), MINUTE_S)]

    def decide(at: int, serving: int) -> int:
        nonlocal held
        if at % TICK_S == 0:
            newest = at // MINUTE_S  # this many minutes are over
            settled = (at - PUBLISHED_S) // MINUTE_S
            known = minutes[max(settled - 1, 0) : newest] if newest else []
            seen = Load(max(known, default=None))
            held = production.decide(scaling, held, seen, [""] * serving, moment(at))
        return held.replicas

    return decide


def skyserve(load: Sequence[float], scaling: Scaling) -> Rule:
    """SkyServe's request rate autoscaler: so many decisions in a row, by the requests of the last minute."""
    wanted, up, down, due, recent = scaling.min_replicas, 0, 0, 0, 0.0
    up_needed = int(scaling.upscale_delay_s / DECISION_S)
    down_needed = int(scaling.downscale_delay_s / DECISION_S)

    def decide(at: int, _serving: int) -> int:
        nonlocal wanted, up, down, due, recent
        recent += (load[at - 1] if at else 0.0) - (load[at - 61] if at > MINUTE_S else 0.0)
        if at < due:
            return wanted
        number = ceil(round(recent / MINUTE_S / (scaling.target_qps_per_replica or 1.0), 9))
        number = min(max(number, scaling.min_replicas), scaling.max_replicas)
        up, down = (up + 1 if number > wanted else 0), (down + 1 if number < wanted else 0)
        is_up = number > wanted and (up >= up_needed or wanted == 0)
        if is_up or (number < wanted and down >= down_needed):
            wanted, up, down = number, 0, 0
        due = at + (DECISION_S if wanted else AT_ZERO_S)
        return wanted

    return decide


def replay(name: str, rule: Rule, load: Sequence[float], qps: float, cold_start_s: float) -> LoadOutcome:
    """Second by second. The first replicas are there at the beginning."""
    fleet = _Fleet([0] * rule(0, 0))
    waiting = rejected = served = waited_s = most_s = paid_s = 0.0
    most, changes, before = 0, 0, len(fleet.up_at)
    for at, rate in enumerate(load):
        serving = fleet.serving(at)
        wanted = rule(at, serving) if at else before
        changes, before = changes + (wanted != before), wanted
        fleet.scale(wanted, at, round(cold_start_s))
        serving, most = fleet.serving(at), max(most, wanted)
        paid_s += len(fleet.up_at)
        if not serving:
            rejected += rate + waiting
            waiting = 0.0
            continue
        done = min(waiting + rate, serving * qps)
        waiting, served = waiting + rate - done, served + done
        waited_s, most_s = waited_s + waiting, max(most_s, waiting / (serving * qps))
    whole = rejected + served + waiting
    return LoadOutcome(
        name,
        rejected / whole if whole else 0.0,
        waited_s / served if served else 0.0,
        most_s,
        paid_s / len(load),
        most,
        changes,
    )


@dataclass(slots=True)
class _Fleet:
    """Replicas, by when they are up."""

    up_at: list[int] = field(default_factory=list)

    def serving(self, at: int) -> int:
        return sum(up <= at for up in self.up_at)

    def scale(self, wanted: int, at: int, cold_start_s: int) -> None:
        """What isn't up goes first."""
        self.up_at.sort()
        del self.up_at[wanted:]
        self.up_at += [at + cold_start_s] * (wanted - len(self.up_at))


def compare(load: Sequence[float], scaling: Scaling, cold_start_s: float) -> list[LoadOutcome]:
    """What comes of each rule; the fixed numbers are the most, and as many as the load needs on average."""
    qps = scaling.target_qps_per_replica or 1.0
    average = max(ceil(sum(load) / len(load) / qps), 1)
    fixed = dict.fromkeys((scaling.max_replicas, average))
    rules: list[tuple[str, Rule]] = [
        ("spotrelay", spotrelay(load, scaling)),
        ("skyserve", skyserve(load, scaling)),
        *((f"fixed {number}", _fixed(number)) for number in fixed),
    ]
    return [replay(name, rule, load, qps, cold_start_s) for name, rule in rules]


def _fixed(number: int) -> Rule:
    return lambda _at, _serving: number


def table(outcomes: Sequence[LoadOutcome]) -> Table:
    """For a terminal."""
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    shown.add_column("rule", no_wrap=True)
    for name in ("rejected", "waited\nmean", "waited\nmost", "replicas\nmean", "replicas\nmost", "changes"):
        shown.add_column(name, justify="right", no_wrap=True)
    for outcome in outcomes:
        shown.add_row(
            outcome.rule,
            f"{outcome.rejected:.3%}",
            f"{outcome.waited_s:,.1f} s",
            f"{outcome.waited_most_s:,.0f} s",
            f"{outcome.cost:.2f}",
            f"{outcome.most}",
            f"{outcome.changes}",
        )
    return shown


def to_dict(outcome: LoadOutcome) -> dict[str, object]:
    """For JSON."""
    return asdict(outcome)
