"""What the user sees while the demo runs: a live table where there is a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from spotrelay.operator.look.watch import Snapshot
from spotrelay.plane.core.replica import Replica, ReplicaState

REFRESHES_PER_S = 4
"""As often as the rows are read; more would only cost processor time that the demo needs."""

PLAIN_EVERY_S = 10.0
"""Between two lines of counters where there is no live view: a log shall stay readable."""

ENDED_SHOWN = 4
"""Ended replicas in the live table, the latest of each service: all must fit a terminal of 40 lines."""

STYLES: Mapping[ReplicaState, str] = {
    ReplicaState.REQUESTED: "dim",
    ReplicaState.PROVISIONING: "cyan",
    ReplicaState.STARTING: "blue",
    ReplicaState.READY: "green",
    ReplicaState.DRAINING: "yellow",
    ReplicaState.STANDBY: "magenta",
    ReplicaState.TERMINATED: "dim",
    ReplicaState.FAILED: "red",
}

Counters = Callable[[], Mapping[str, Any]]
"""The load's counters: sent, failed, cut, and in flight."""


class View:
    """The demo's voice. Used as a context manager around everything that is to be seen."""

    def __init__(self, console: Console, counters: Counters | None = None) -> None:
        self._console = console
        self._counters = counters
        self._began = time.monotonic()
        self._headline = ""
        self._snapshots: dict[str, Snapshot] = {}
        self._last_plain = self._began
        self._last_counters = (self._began, 0)
        self._rate = 0.0
        self._lock = threading.Lock()
        self._live: Live | None = None

    def __enter__(self) -> View:
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._render,
                console=self._console,
                refresh_per_second=REFRESHES_PER_S,
                transient=True,  # the lines of the stories and the table at the end are what stays
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop updating; lines can still be said."""
        live, self._live = self._live, None
        if live:
            live.stop()

    def count_with(self, counters: Counters | None) -> None:
        """Show these counters from now on."""
        with self._lock:
            self._counters = counters

    def headline(self, text: str) -> None:
        """What is going on now, over the table."""
        with self._lock:
            self._headline = text

    def say(self, text: str) -> None:
        """One line, with the seconds since the demo began. It stays."""
        elapsed_s = time.monotonic() - self._began
        self._console.print(f"[dim]{elapsed_s:6.1f} s[/]  {escape(text)}", highlight=False, soft_wrap=True)

    def title(self, text: str) -> None:
        """The line that opens a story."""
        self.headline(text)
        elapsed_s = time.monotonic() - self._began
        self._console.print(
            f"[dim]{elapsed_s:6.1f} s[/]  [bold]{escape(text)}[/]", highlight=False, soft_wrap=True
        )

    def show(self, service: str, snapshot: Snapshot) -> None:
        """A service's replicas as just read."""
        with self._lock:
            self._snapshots[service] = snapshot
            is_due = self._live is None and time.monotonic() - self._last_plain >= PLAIN_EVERY_S
            if not is_due:
                return
            self._last_plain = time.monotonic()
            fleets = [
                f"{name}: " + (", ".join(f"{r.id} {r.state}" for r in seen.present) or "no replicas yet")
                for name, seen in self._snapshots.items()
            ]
        for line in fleets:
            self.say(line)
        if line := self._requests_line():
            self.say(f"requests: {line}")

    def _requests_line(self) -> str:
        counters = self._counters() if self._counters else None
        if not counters:
            return ""
        now = time.monotonic()
        then, sent_then = self._last_counters
        if now - then >= 1:
            self._rate = (counters["sent"] - sent_then) / (now - then)
            self._last_counters = (now, counters["sent"])
        return (
            f"{counters['sent']} sent ({self._rate:.1f}/s), "
            f"{counters['in_flight']} in flight, {counters['failed']} failed, {counters['cut']} cut"
        )

    def _render(self) -> RenderableType:
        with self._lock:
            parts: list[RenderableType] = [Text(self._headline, style="bold")]
            if self._snapshots:
                parts.append(_fleet_table(self._snapshots))
            if line := self._requests_line():
                parts.append(Text(f"requests: {line}"))
            return Group(*parts)


def _fleet_table(snapshots: Mapping[str, Snapshot]) -> Table:
    now = datetime.now(UTC)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("service", "ID", "state", "pool", "bought as", "age", "replaces"):
        table.add_column(name, justify="right" if name in ("ID", "age", "replaces") else "left")
    for snapshot in snapshots.values():
        ended = [r for r in snapshot.replicas.values() if r.state.is_ended][-ENDED_SHOWN:]
        for replica in (*ended, *snapshot.present):
            table.add_row(*_fleet_row(replica, now), style="dim" if replica.state.is_ended else "")
    return table


def _fleet_row(replica: Replica, now: datetime) -> tuple[RenderableType, ...]:
    born = min(replica.entered.values())
    until = replica.since if replica.state.is_ended else now
    state = str(replica.state)
    if replica.is_warned and not replica.state.is_ended:
        state += ", keeps serving" if replica.serves else ", warned"
    return (
        replica.service,
        str(replica.id),
        Text(state, style=STYLES[replica.state]),
        str(replica.offering.pool) if replica.offering else "",
        str(replica.offering.purchase_option) if replica.offering else "",
        f"{(until - born).total_seconds():.0f} s",
        "fallback" if replica.is_fallback else str(replica.replaces or ""),
    )


def conclusion(report: Mapping[str, Any]) -> RenderableType:
    """The end of the demo: interruptions with their times, the requests, and the verdict."""
    requests = report["requests"]
    first, total = requests["first_token_s"], requests["latency_s"]
    return Group(
        "",
        _interruptions_table(report),
        "",
        Text.assemble(
            ("requests: ", "bold"),
            f"{requests['sent']} sent, {requests['failed']} failed, {requests['cut']} cut;"
            f" first token {first['p50']:.2f} s median, {first['p95']:.2f} s p95;"
            f" whole answer {total['p50']:.2f} s median, {total['max']:.2f} s at most",
        ),
        *_unservable(report),
        _metrics(report),
        _verdict(report),
    )


_NOBODY: Mapping[str, Any] = {"id": "nobody", "pool": "", "purchase_option": "", "entered": {}}

_TIMES = ("deregistered", "launched", "ready", "reclaimed")


def _told_of(report: Mapping[str, Any]) -> str:
    """Which service's replicas each story is about: each service counts its own."""
    stories: dict[str, set[str]] = {}
    for i in report["interruptions"]:
        stories.setdefault(i["service"], set()).add(f"({i['story']})")
    return "; ".join(f"{', '.join(sorted(told))}: {service}" for service, told in stories.items())


def _interruptions_table(report: Mapping[str, Any]) -> Table:
    table = Table(
        title="Seconds from EC2's warning until the replica was out of rotation, the one that replaced it was"
        ' launched\nand ready, and EC2 took the instance. Median and max of "out" leave out those that kept'
        f" serving.\n{_told_of(report)}",
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column("story", no_wrap=True)
    for side in ("lost", "new"):
        table.add_column(side, justify="right", no_wrap=True)
        table.add_column("pool", no_wrap=True)
    table.add_column("bought as", no_wrap=True)
    for name in ("out", "launched", "ready", "taken"):
        table.add_column(name, justify="right", no_wrap=True)
    replicas = {(replica["service"], replica["id"]): replica for replica in report["replicas"]}
    for i in report["interruptions"]:
        by = replicas.get((i["service"], i["fallback"] or i["replaced_by"]), _NOBODY)
        times = (_seconds(i[f"warned_to_{name}_s"]) for name in _TIMES)
        story = i["story"] if i["event"] == "once" else f"{i['story']}, event {i['event']}"
        story += ", kept serving" if i["served_on_s"] is not None else ""
        row = (story, i["replica"], i["pool"], by["id"], by["pool"], by["purchase_option"], *times)
        table.add_row(*(str(cell or "") for cell in row))
        if i["fallback"]:
            table.add_row(*_return(i, replicas.get((i["service"], i["replaced_by"]), _NOBODY)))
    table.add_row()
    for what in ("median", "max"):
        times = (_seconds(report["summary"].get(f"warned_to_{name}_s", {}).get(what)) for name in _TIMES)
        table.add_row(what, "", "", "", "", "", *times, style="bold")
    return table


def _return(interruption: Mapping[str, Any], by: Mapping[str, Any]) -> tuple[str, ...]:
    """The row below one with a fallback: when the replacement had its Spot instance."""

    def since_warning(state: ReplicaState) -> str:
        at = by["entered"].get(state)
        warned_at = datetime.fromisoformat(interruption["warned_at"])
        return _seconds((datetime.fromisoformat(at) - warned_at).total_seconds() if at else None)

    times = (since_warning(ReplicaState.PROVISIONING), since_warning(ReplicaState.READY))
    story = f"{interruption['story']}, back on Spot"
    return (story, "", "", str(by["id"]), by["pool"] or "", by["purchase_option"] or "", "", *times, "")


def _unservable(report: Mapping[str, Any]) -> Iterator[RenderableType]:
    """What nobody could have served: on a machine that is too slow for so short a warning."""
    count, gap_s = report["requests"]["unservable"], report["nobody_in_rotation_s"]
    if count:
        yield Text(
            f"{count} of them came when nobody could serve: for {gap_s:.1f} s the last replica was at its end"
            " and its replacement not ready. Standbys bridge a start that takes longer than a warning"
            " (docs/standbys.md). If it only just does, a longer one is enough: make demo WARNING_S=60",
            style="bold yellow",
        )


def _metrics(report: Mapping[str, Any]) -> RenderableType:
    """What the run's metrics would cost: CloudWatch charges for the hours in which one has a value."""
    bill = report["metrics"]
    hours = ", ".join(f"{number} metric-hours of {name}" for name, number in bill["metric_hours"].items())
    charged = f"CloudWatch would charge {bill['usd']:.4f} USD for {hours or 'none'}"
    return Text.assemble(("metrics: ", "bold"), charged)


def _verdict(report: Mapping[str, Any]) -> RenderableType:
    if report["ok"]:
        told = len(report["stories"])
        if report["requests"]["unservable"]:
            return Text(
                f"{told} stories told in {report['took_s']:.0f} s. Who could serve did.", style="bold"
            )
        return Text(
            f"{told} stories told in {report['took_s']:.0f} s, every promise kept.", style="bold green"
        )
    lines = [Text("Broken promises:", style="bold red"), *(Text(f"  {line}") for line in report["problems"])]
    return Group(*lines)


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f}"
