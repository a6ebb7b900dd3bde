"""What takes EC2's own two minutes: begun all at once, each in a service of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from lab.demo.operator import Operator
from spotrelay.plane.core.names import TAG_SERVICE
from spotrelay.plane.core.replica import Replica
from tests.e2e.clients import CLIENTS, Clients
from tests.e2e.damage import Damage, Snapshot
from tests.e2e.faults.bench import Bench

DRY_S = 60.0
"""No pool of a service has any capacity for so long, from the warnings on."""

SLOW = "slow"
"""The service whose cold starts take longer than anything here, and which has standbys."""

LONG_TOKENS = 80
"""An answer of four seconds, in a service whose others take one, and which drains for five."""


@dataclass(frozen=True, slots=True)
class Story:
    """A service that something happens to, its clients, and its replicas as they were before."""

    bench: Bench
    clients: Clients
    before: Sequence[Replica]


@dataclass(frozen=True, slots=True)
class Stories:
    """Everything that is under way."""

    taken: Story
    """EC2 warned all of it while no pool has capacity."""
    hung: Story
    """The first of its replicas answers nothing any more."""
    slow: Story
    """EC2 warned all of it while no Spot pool has capacity, and no cold start comes to its end."""
    long: Clients
    """Those of its clients who ask for long answers."""
    gate: Path
    """Remove it, and cold starts come to their end."""
    stuck: Story
    """One replica is too many, and no instance of it can be terminated."""
    foreign: str
    """An instance that isn't ours, with the tag that says that it is the demo's."""
    backup: Snapshot
    """The demo's part of the table, before two of its replicas were replaced."""


@contextmanager
def begun(operator: Operator, gate: Path) -> Iterator[Stories]:
    """Begin them; `gate` is shut while there is such a file."""
    benches = {name: Bench(operator, name) for name in ("demo", "taken", SLOW, "hung", "stuck")}
    present = {name: bench.settled().present for name, bench in benches.items()}
    backup = _replace_two(benches["demo"], present["demo"])
    with (
        Clients(benches["taken"]) as of_taken,
        Clients(benches[SLOW], CLIENTS // 2) as short,
        Clients(benches[SLOW], CLIENTS // 2, LONG_TOKENS) as long,
        Clients(benches["hung"]) as of_hung,
        Clients(benches["stuck"]) as of_stuck,
    ):
        stories = Stories(
            Story(benches["taken"], of_taken, present["taken"]),
            Story(benches["hung"], of_hung, present["hung"]),
            Story(benches[SLOW], short, present[SLOW]),
            long,
            gate,
            Story(benches["stuck"], of_stuck, present["stuck"]),
            _foreign(operator),
            backup,
        )
        _keep(stories.stuck)
        operator.cloud.hang(str(stories.hung.before[0].instance_id))
        gate.touch()
        rains = [_take(stories.slow, has_on_demand=True), _take(stories.taken)]
        try:
            yield stories
        finally:
            for rain in rains:
                rain.cancel()


def _replace_two(bench: Bench, present: Sequence[Replica]) -> Snapshot:
    """Lose two replicas, which the product replaces; a backup of the table from before that."""
    backup = Damage.to(bench.operator).snapshot(bench.service)
    ids = [str(r.instance_id) for r in present[:2]]
    bench.operator.session.client("ec2").terminate_instances(InstanceIds=ids)
    return backup


def _foreign(operator: Operator) -> str:
    """Launch an instance that bears the demo's tag, as anybody in the account may."""
    tags = [{"Key": TAG_SERVICE, "Value": "demo"}]
    launched: Mapping[str, list[dict[str, str]]] = operator.session.client("ec2").run_instances(
        ImageId="ami-12345678",
        InstanceType="m5.large",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    return launched["Instances"][0]["InstanceId"]


def _keep(story: Story) -> None:
    """Want one replica less, while no instance can be terminated."""
    for replica in story.before:
        story.bench.cloud.deny("ec2:TerminateInstances", str(replica.instance_id))
    story.bench.want(len(story.before) - 1)


def _take(story: Story, *, has_on_demand: bool = False) -> Timer:
    """Warn all of a service in one moment; its pools are dry, and have capacity again `DRY_S` later."""
    bring_back = story.bench.dry_up(has_on_demand=has_on_demand)
    story.bench.cloud.warn_all([str(r.instance_id) for r in story.before if r.serves])
    timer = Timer(DRY_S, bring_back)
    timer.daemon = True
    timer.start()
    return timer
