"""What `pack` and `bake` have in common: an instance that runs set-up, its price, and its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from spotrelay.operator.aws.makers import ENDED, Maker
from spotrelay.operator.cli.deploying import Limit
from spotrelay.operator.cli.errors import EXIT_FAILED, CommandError
from spotrelay.operator.cli.telling import Teller
from spotrelay.operator.look.access import ControlPlane
from spotrelay.plane.core.pools import CapacityPool
from spotrelay.plane.core.ports import Throttled, Unavailable
from spotrelay.plane.view.words import duration

T = TypeVar("T")

LOOK_S = 5.0
"""Between looks: two calls, and set-up takes minutes."""

LAST_LINES = 12
"""Of a set-up that fails, or an engine that doesn't start: each says why in its last ones."""

_OF_OTHERS = ("no engine cache", "nothing is packed: set-up", "nothing is baked: set-up")
"""How words begin that say whose fault it was, and not which."""


def at_most_one(there: Sequence[str], does: str, service: str) -> None:
    """Whether nobody else is at it.

    Raises:
        CommandError: these instances are.
    """
    if there:
        raise CommandError(
            f"{', '.join(there)} {does} {service} already: wait until it has ended, which it does by"
            f" itself, or end it: aws ec2 terminate-instances --instance-ids {' '.join(there)}",
            EXIT_FAILED,
        )


def cheapest_first(pools: Iterable[CapacityPool], prices: Mapping[str, float]) -> list[CapacityPool]:
    """Of those without a known price, the file's order."""
    return sorted(pools, key=lambda pool: prices.get(pool.instance_type, float("inf")))


def usd(amount: float | None) -> str:
    """A price, as far as it is known."""
    return "an unknown price" if amount is None else f"{amount:.2f} USD"


def cost_usd(prices: Mapping[str, float], pool: CapacityPool, took_s: float) -> float | None:
    """What an instance has cost; None: its price isn't known."""
    price = prices.get(pool.instance_type)
    return price * took_s / 3600 if price else None


def awaited(
    plane: ControlPlane,
    maker: Maker,
    instance_id: str,
    look: Callable[[], T | None],
    teller: Teller,
    limit: Limit,
    *,
    what: str,
    kept: str = "",
) -> T:
    """What an instance makes, once `look` finds it. `kept`: what there is already, if it fails.

    Raises:
        CommandError: the instance has ended without it, or time is over.
        PortError: AWS refuses to say.
    """
    while True:
        found: T | None = None
        try:
            state = maker.state(instance_id)
            found = look()
        except (Throttled, Unavailable) as error:
            teller.now(str(error))  # over in a moment
            state = ""
        if found:
            return found
        if state in ENDED:
            words = last_words(plane, instance_id)
            raise CommandError(f"{kept}{instance_id} has ended without {what}: {words}", EXIT_FAILED)
        if limit.is_over:
            raise CommandError(
                f"{kept}{instance_id} hasn't made {what} within {duration(limit.lasts_s)}, and is ended: give"
                " --timeout more, or see why it takes so long",
                EXIT_FAILED,
            )
        teller.now(f"{instance_id} is {state or 'unknown'} ({duration(limit.elapsed_s)})")
        time.sleep(LOOK_S)


def last_words(plane: ControlPlane, instance_id: str) -> str:
    """What the instance said last of itself, and before it set-up or the engine, if it is about that.

    Raises:
        PortError: EC2 doesn't say.
    """
    from spotrelay.messages import harmless
    from spotrelay.operator.aws.console import console_output

    lines = console_output(plane.clients, instance_id).splitlines()
    own = [number for number, line in enumerate(lines) if "spotrelay: " in line]
    if not own:
        return f"its console says more: aws ec2 get-console-output --instance-id {instance_id}"
    words = lines[own[-1]].partition("spotrelay: ")[2]
    if not words.startswith(_OF_OTHERS):
        return words
    before = [harmless(line) for line in lines[max(0, own[-1] - LAST_LINES) : own[-1]]]
    return "\n  ".join([f"{words}. Before that:", *before])
