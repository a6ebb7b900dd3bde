"""Whom a replica that starts may ask for its models: those of its service, version and zone that have them.

The launch names them in a tag, which the instance reads from its metadata. A launch asks pools of several
zones at once, so the tag says which peer is where: `a:10.0.0.4 a:10.0.0.9 b:10.0.16.7`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain, zip_longest

from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.spec import ServiceSpec

MOST = 4
"""Peers of a zone. Two send as much as an instance of eight vCPUs is sure to receive; the others are for when
one has gone, or is busy with others that start."""

MAX_LENGTH = 256
"""Characters of a tag's value: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_Tag.html"""

NOBODY = "none"
"""Said instead of nothing: that there is no tag means that the metadata don't have it yet."""


def named(spec: ServiceSpec, replicas: Iterable[Replica]) -> str:
    """What the tag of a launch says, of a service that has peers.

    One that EC2 takes back serves models until its end, and is named last. Of each zone some are named,
    however many there are of others.
    """
    addresses: dict[str, dict[str, None]] = defaultdict(dict)
    for replica in sorted(replicas, key=lambda r: (r.is_warned, r.id)):
        is_there = replica.state is ReplicaState.READY or (
            replica.state is ReplicaState.DRAINING and replica.is_warned
        )
        if is_there and replica.version == spec.version and replica.address and replica.offering:
            # The slots of an instance have one address.
            addresses[replica.offering.pool.zone[-1]][replica.address] = None
    by_zone = [
        [f"{zone}:{address}" for address in list(found)[:MOST]] for zone, found in sorted(addresses.items())
    ]
    text = ""
    for entry in filter(None, chain.from_iterable(zip_longest(*by_zone))):
        longer = f"{text} {entry}".lstrip()
        if len(longer) > MAX_LENGTH:
            break
        text = longer
    return text or NOBODY
