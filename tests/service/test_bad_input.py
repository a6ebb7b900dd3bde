"""Every bad service file: the error names file, line and field, what was expected, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spotrelay.file.service import (
    InvalidServiceFileError,
    MalformedServiceFileError,
    ServiceFileError,
    UnreadableServiceFileError,
    load,
)
from spotrelay.file.source.document import MAX_FILE_BYTES

from .conftest import GOOD, Refuser


def changed(old: str, new: str) -> str:
    """The good file with one thing changed."""
    assert old in GOOD
    return GOOD.replace(old, new)


REPLICAS, PORTS, ACCELERATORS, RUN = (
    "replicas: 2",
    "ports: 8081",
    "accelerators: {A10G, L4, L40S}",
    "run: python3 serve.py",
)

PROBE = "  readiness_probe: {path: /v1, post_data: {a: 1}}\n"
STANDBYS = "auto, a whole number from 0 to 1000, or a share of replicas from 1% to 999%, such as 100%"


def standby(value: str, more: str = "") -> str:
    """The good file with standbys."""
    return changed(f"{REPLICAS}\n", f"{REPLICAS}\n{PROBE}{more}") + f"spotrelay: {{standby: {value}}}\n"


RESERVATIONS = (
    "the ARN of a resource group of capacity reservations, such as "
    "arn:aws:resource-groups:us-east-1:123456789012:group/chat"
)


def reserved(group: str = "arn:aws:resource-groups:us-east-1:123456789012:group/chat") -> str:
    """The good file with capacity reservations."""
    return GOOD + f"spotrelay: {{capacity_reservations: {group}}}\n"


SHARE = "a share of a replica's own price from 5% to 90%, such as 20%"


def moving(share: str, more: str = "") -> str:
    """The good file with replicas that move to cheaper Spot."""
    return changed(f"{REPLICAS}\n", f"{REPLICAS}\n{more}") + f"spotrelay: {{rebalance_cost: {share}}}\n"


def scored(own: str = "move_on_score: true", more: str = "") -> str:
    """The good file with replicas that move by score."""
    return changed(f"{PORTS}\n", f"{PORTS}\n{more}") + f"spotrelay: {{{own}}}\n"


MOUNTED = "a target of file_mounts where a bucket is mounted, such as /results"


def writable(target: str) -> str:
    """A service that mounts /a, copies to /b, and would write to a target."""
    mounts = "file_mounts: {/a: {source: s3://data}, /b: s3://data}\n"
    return f"{GOOD}{mounts}spotrelay: {{writable_mounts: [{target}]}}\n"


BAD = {  # name: (text, the error after "chat.yaml:")
    "negative replicas": (
        changed(REPLICAS, "replicas: -1"),
        "2:3: service.replicas: expected a whole number from 0 to 1000, got -1",
    ),
    "a number in quotes": (
        changed(REPLICAS, 'replicas: "2"'),
        "2:3: service.replicas: expected a whole number from 0 to 1000, got '2'",
    ),
    "a fraction": (
        changed(REPLICAS, "replicas: 1.5"),
        "2:3: service.replicas: expected a whole number from 0 to 1000, got 1.5",
    ),
    "unknown field, close": (
        changed(REPLICAS, "replicas: 2\n  drain_second: 9"),
        "3:3: service.drain_second: unknown field (did you mean spotrelay.drain_seconds?)",
    ),
    "unknown field, wrong section": (
        changed(REPLICAS, "replicas: 2\n  use_spot: true"),
        "3:3: service.use_spot: unknown field here: it belongs at resources.use_spot",
    ),
    "unknown field, no idea": (
        changed(REPLICAS, "replicas: 2\n  zzz: 1"),
        "3:3: service.zzz: unknown field: there are replicas, ports, replica_policy, readiness_probe, "
        "load_balancing_policy, load_balancer, tls",
    ),
    "unknown field, within SkyServe's": (
        changed(REPLICAS, "replicas: 2\n  load_balancer: {stream_timeout: 600}"),
        "3:19: service.load_balancer.stream_timeout: unknown field (did you mean stream_timeout_seconds?)",
    ),
    "a policy beside a number": (
        changed(REPLICAS, "replicas: 2\n  replica_policy: {min_replicas: 1}"),
        "2:3: service.replicas: stands beside replica_policy, which says it, too: keep one of the two",
    ),
    "a policy without a target": (
        changed(REPLICAS, "replica_policy: {min_replicas: 1, max_replicas: 3}"),
        "2:3: service.replica_policy.target_qps_per_replica: missing: between min_replicas and max_replicas "
        "the number follows the load, so say how many requests a second one replica is to have",
    ),
    "a policy without a minimum": (
        changed(REPLICAS, "replica_policy: {max_replicas: 3, target_qps_per_replica: 1}"),
        "2:3: service.replica_policy.min_replicas: missing: expected a whole number from 0 to 1000",
    ),
    "a policy whose range is empty": (
        changed(REPLICAS, "replica_policy: {min_replicas: 4, max_replicas: 3}"),
        "2:37: service.replica_policy.max_replicas: expected min_replicas, 4, or more, got 3",
    ),
    "a slip within a policy": (
        changed(REPLICAS, "replica_policy: {min_replicas: 1, base_ondemand_fallback_replica: 1}"),
        "2:37: service.replica_policy.base_ondemand_fallback_replica: unknown field "
        "(did you mean base_ondemand_fallback_replicas?)",
    ),
    "a fraction of nothing": (
        changed(REPLICAS, "replica_policy: {min_replicas: 1, max_replicas: 2, target_qps_per_replica: 0}"),
        "2:54: service.replica_policy.target_qps_per_replica: expected requests a second, more than 0, or a "
        "mapping of accelerators to them, got 0",
    ),
    "a header that is two": (
        changed(REPLICAS, 'replicas: 2\n  readiness_probe: {path: /, headers: {X-A: "b\\nC: d"}}'),
        "3:40: service.readiness_probe.headers.X-A: expected a header's value, in ASCII, got 'b\\nC: d'",
    ),
    "a certificate of another kind": (
        GOOD + "spotrelay: {certificate_arn: cert.pem}",
        "8:13: spotrelay.certificate_arn: expected an ACM certificate's ARN, "
        "arn:aws:acm:REGION:ACCOUNT:certificate/…, got 'cert.pem'",
    ),
    "a pool of workers": (
        GOOD + "pool: {workers: 3}\nenvs: 3",
        "8:1: pool: a pool of workers serves no HTTP: SpotRelay runs services, as in `service:`",
    ),
    "missing field": (
        changed(PORTS, "use_spot: true"),
        "4:1: resources.ports: missing: expected the port that `run` listens on, such as 8080",
    ),
    "missing section": (
        "run: x\nservice: {replicas: 1}",
        "1:1: resources: missing: expected fields (accelerators, ports …)",
    ),
    "section of the wrong type": (
        "run: x\nservice: 3\nresources: {ports: 80, accelerators: T4}",
        "2:1: service: expected fields (replicas, readiness_probe …), got 3",
    ),
    "port too high": (
        changed(PORTS, "ports: 70000"),
        "6:3: resources.ports: expected a port from 1 to 65535, such as 8080, got 70000",
    ),
    "standbys of another kind": (
        standby("Auto"),
        f"9:13: spotrelay.standby: expected {STANDBYS}, got 'Auto'",
    ),
    "a negative share of standbys": (
        standby("-1%"),
        f"9:13: spotrelay.standby: expected {STANDBYS}, got '-1%'",
    ),
    "a fraction of a standby": (
        standby("0.5"),
        f"9:13: spotrelay.standby: expected {STANDBYS}, got 0.5",
    ),
    "too many standbys": (
        standby("1001"),
        f"9:13: spotrelay.standby: expected {STANDBYS}, got 1001",
    ),
    "a truth for a standby": (
        standby("true"),
        f"9:13: spotrelay.standby: expected {STANDBYS}, got true",
    ),
    "standbys that nothing tells to be prepared": (
        changed(REPLICAS, "replicas: 2\n  readiness_probe: /ready") + "spotrelay: {standby: 1}\n",
        "9:13: spotrelay.standby: a standby is prepared outside the rotation, where only a "
        "service.readiness_probe with post_data tells that it is: add one, or remove this",
    ),
    "a number of standbys to be found out, and nothing that tells them to be prepared": (
        changed(REPLICAS, "replicas: 0\n  readiness_probe: /ready") + "spotrelay: {standby: auto}\n",
        "9:13: spotrelay.standby: a standby is prepared outside the rotation, where only a "
        "service.readiness_probe with post_data tells that it is: add one, or remove this",
    ),
    "standbys without fallback": (
        standby("1", "  on_demand_fallback: false\n"),
        "10:13: spotrelay.standby: a standby is an on-demand instance that stands in for Spot, which "
        "service.on_demand_fallback: false rules out: remove one of the two",
    ),
    "standbys of what is all on-demand": (
        standby("1", "  base_on_demand: 2\n"),
        "10:13: spotrelay.standby: all 2 replicas are on-demand (service.base_on_demand), so there is no "
        "interruption to bridge: remove this, or make service.base_on_demand smaller",
    ),
    "standbys without Spot": (
        standby("1").replace("ports: 8081", "ports: 8081\n  use_spot: false"),
        "10:13: spotrelay.standby: with resources.use_spot: false there is no interruption that a standby "
        "could bridge: remove one of the two",
    ),
    "standbys whose disk forgets": (
        standby("1") + "setup: fetch-model /opt/dlami/nvme/model\n",
        "10:1: setup: a stopped standby loses what is below /opt/dlami/nvme, and setup isn't run again when "
        "it is resumed: let it write to the root volume, or remove spotrelay.standby",
    ),
    "a move for a share that prices always move by": (
        moving("4%"),
        f"8:13: spotrelay.rebalance_cost: expected {SHARE}, got '4%'",
    ),
    "a move for a share that is never saved": (
        moving("91%"),
        f"8:13: spotrelay.rebalance_cost: expected {SHARE}, got '91%'",
    ),
    "a move for what may be dollars": (
        moving("0.2"),
        f"8:13: spotrelay.rebalance_cost: expected {SHARE}, got 0.2",
    ),
    "a move without Spot": (
        moving("20%").replace("ports: 8081", "ports: 8081\n  use_spot: false"),
        "9:13: spotrelay.rebalance_cost: replicas move to cheaper Spot, and resources.use_spot: false rules "
        "that out: remove one of the two",
    ),
    "a move of what is all on-demand": (
        moving("20%", "  base_on_demand: 2\n"),
        "9:13: spotrelay.rebalance_cost: all 2 replicas are on-demand (service.base_on_demand), and only "
        "those on Spot move: remove this, or make service.base_on_demand smaller",
    ),
    "a move with no room beside": (
        moving("20%").replace("surge: 1", "surge: 0"),
        "8:13: spotrelay.rebalance_cost: a replica moves once another runs beside it, which service.surge: 0 "
        "rules out: remove one of the two",
    ),
    "a move by score without Spot": (
        scored(more="  use_spot: false\n"),
        "9:13: spotrelay.move_on_score: replicas move to a zone with a better score, and resources.use_spot: "
        "false rules that out: remove one of the two",
    ),
    "a move by score of what is all on-demand": (
        scored("move_on_score: true, base_on_demand: 2"),
        "8:13: spotrelay.move_on_score: all 2 replicas are on-demand (spotrelay.base_on_demand), and only "
        "those on Spot move: remove this, or make spotrelay.base_on_demand smaller",
    ),
    "a move by score with no room beside": (
        scored().replace("surge: 1", "surge: 0"),
        "8:13: spotrelay.move_on_score: a replica moves once another runs beside it, which service.surge: 0 "
        "rules out: remove one of the two",
    ),
    "a move by score that is neither on nor off": (
        scored("move_on_score: 3"),
        "8:13: spotrelay.move_on_score: expected true or false, got 3",
    ),
    "a move by scores that tell nothing": (
        scored(more="  instance_types: [g5.xlarge, g6.xlarge]\n"),
        "9:13: spotrelay.move_on_score: replicas move by EC2's placement scores, which tell nothing of fewer "
        "than 3 instance types, and resources allow g5.xlarge and g6.xlarge: allow more of them, or remove "
        "this",
    ),
    "a move by score out of the only zone": (
        scored(more="  zones: [us-east-1a]\n"),
        "9:13: spotrelay.move_on_score: replicas move to other zones, and resources.zones is us-east-1a: "
        "name more of them, or remove this",
    ),
    "standbys of a type that replicas can't have": (
        standby("1, standby_instance_types: [p4d.24xlarge]"),
        "9:50: spotrelay.standby_instance_types[0]: p4d.24xlarge isn't a type that resources allow for a "
        "replica, and a standby becomes one: change one of the two",
    ),
    "standbys in a zone that replicas can't be in": (
        standby("1, standby_zones: [us-east-1c]").replace(
            "ports: 8081", "ports: 8081\n  zones: [us-east-1a]"
        ),
        "10:41: spotrelay.standby_zones[0]: us-east-1c isn't one of resources.zones, us-east-1a: "
        "change one of the two",
    ),
    "standbys in another section": (
        changed(REPLICAS, "replicas: 2\n  standby: 1"),
        "3:3: service.standby: unknown field here: it belongs at spotrelay.standby",
    ),
    "standbys that hibernate": (
        standby("1, standby_hibernate: true"),
        "9:25: spotrelay.standby_hibernate: unknown field: EC2 hibernates no instance type that has an "
        "accelerator: a standby is stopped, and keeps its disk; remove it",
    ),
    "a writable mount of what is copied": (
        writable("/b"),
        f"9:31: spotrelay.writable_mounts[0]: expected {MOUNTED}, got '/b': there are /a",
    ),
    "a writable mount of everything": (
        writable("/"),
        f"9:31: spotrelay.writable_mounts[0]: expected {MOUNTED}, got '/': there are /a",
    ),
    "a capacity reservation in no group": (
        reserved("cr-0123456789abcdef0"),
        f"8:13: spotrelay.capacity_reservations: expected {RESERVATIONS}, got 'cr-0123456789abcdef0': put "
        "reservations into a group, which may be full or change: docs/standbys.md says how",
    ),
    "several capacity reservations": (
        reserved("[cr-0123456789abcdef0, cr-0123456789abcdef1]"),
        f"8:13: spotrelay.capacity_reservations: expected {RESERVATIONS}, got a list: put "
        "reservations into a group, which may be full or change: docs/standbys.md says how",
    ),
    "no group": (
        reserved("chat"),
        f"8:13: spotrelay.capacity_reservations: expected {RESERVATIONS}, got 'chat'",
    ),
    "reservations in another region's zones": (
        reserved().replace("ports: 8081", "ports: 8081\n  zones: [us-east-2a, us-east-2b]"),
        "9:13: spotrelay.capacity_reservations: the group is in us-east-1, and resources.zones is "
        "us-east-2a, us-east-2b: change one of the two",
    ),
    "reservations in another region": (
        reserved().replace("ports: 8081", "ports: 8081\n  regions: [us-east-2]"),
        "9:13: spotrelay.capacity_reservations: the group is in us-east-1, and resources.regions is "
        "us-east-2: change one of the two",
    ),
    "reservations that Spot can't use": (
        reserved().replace(REPLICAS, f"{REPLICAS}\n  on_demand_fallback: false"),
        "9:13: spotrelay.capacity_reservations: only on-demand instances use capacity reservations, and this "
        "service has none: set spotrelay.base_on_demand, let service.on_demand_fallback be true, or remove "
        "this",
    ),
    "several ports": (
        changed(PORTS, "ports: [80, 81]"),
        "6:3: resources.ports: several ports, and service.ports doesn't say which one serves: "
        "add it, or leave one here",
    ),
    "YAML 1.1's yes": (
        changed(PORTS, "ports: 80\n  use_spot: yes"),
        "7:3: resources.use_spot: expected true or false, got 'yes'",
    ),
    "unknown disk tier": (
        changed(PORTS, "ports: 80\n  disk_tier: huge"),
        "7:3: resources.disk_tier: expected low, medium, high, best or ultra, got 'huge'",
    ),
    "not an amount": (
        changed(PORTS, "ports: 80\n  cpus: 8-16"),
        "7:3: resources.cpus: expected a number (8: exactly) or 8+ (at least), got '8-16'",
    ),
    "not an image": (
        changed(PORTS, "ports: 80\n  image: ubuntu"),
        "7:3: resources.image: expected an AMI (ami-0123456789abcdef0) or the SSM parameter "
        "that holds one (/aws/service/…), got 'ubuntu'",
    ),
    "empty accelerators": (
        changed(ACCELERATORS, "accelerators: []"),
        "5:3: resources.accelerators: "
        "expected accelerators such as A10G:1, or [A10G:1, L4:1], got an empty list",
    ),
    "a count no type has": (
        changed(ACCELERATORS, "accelerators: A10G:3"),
        "5:3: resources.accelerators: no instance type has exactly 3 A10G: there are A10G:1, A10G:4, A10G:8",
    ),
    "no count": (
        changed(ACCELERATORS, "accelerators: 'A10G:'"),
        "5:3: resources.accelerators: expected a whole number of accelerators, as in A10G:1, got ''",
    ),
    "half a GPU": (
        changed(ACCELERATORS, "accelerators: {A10G: 0.5}"),
        "5:18: resources.accelerators.A10G: expected a whole number of accelerators, as in A10G:1, got 0.5",
    ),
    "an image for another chip": (
        changed(ACCELERATORS, "accelerators: Inferentia2:1"),
        "5:3: resources.accelerators: the default image has NVIDIA's driver only, and inf2.xlarge has "
        "Inferentia2: name an image that suits it in spotrelay.image",
    ),
    "unknown instance type": (
        changed(ACCELERATORS, "instance_types:\n  - g5.xlarge\n  - g5.3xlarge"),
        "7:5: resources.instance_types[1]: 'g5.3xlarge' is no known instance type (did you mean g5.xlarge?)",
    ),
    "instance type twice": (
        changed(ACCELERATORS, "instance_types: [g5.xlarge, g5.xlarge]"),
        "5:31: resources.instance_types[1]: g5.xlarge stands in the list twice: remove one",
    ),
    "instance type at odds with the accelerators": (
        changed(ACCELERATORS, "accelerators: A10G\n  instance_types: [g5.xlarge, g5.12xlarge]"),
        "6:31: resources.instance_types[1]: "
        "g5.12xlarge has A10G:4, but accelerators asks for A10G:1: change one of the two",
    ),
    "instance type at odds with cpus": (
        changed(ACCELERATORS, "cpus: 8+\n  instance_types: [g5.xlarge, g5.2xlarge]"),
        "6:20: resources.instance_types[0]: g5.xlarge doesn't satisfy cpus (4 vCPU): change one of the two",
    ),
    "more on-demand than replicas": (
        changed(REPLICAS, "replicas: 2\n  base_on_demand: 3"),
        "3:3: service.base_on_demand: expected a whole number from 0 to replicas, 2, got 3",
    ),
    "a price that may be meant in dollars": (
        changed(PORTS, "ports: 80\n  max_price: 0.7"),
        "7:3: resources.max_price: "
        "expected a share of the on-demand price from 1% to 100%, such as 70%, got 0.7",
    ),
    "a price above on-demand": (
        changed(PORTS, "ports: 80\n  max_price: 120%"),
        "7:3: resources.max_price: "
        "expected a share of the on-demand price from 1% to 100%, such as 70%, got '120%'",
    ),
    "a zone that is a region": (
        changed(PORTS, "ports: 80\n  zones: [us-east-1a, us-east-1]"),
        "7:23: resources.zones[1]: expected a zone such as us-east-1a, got 'us-east-1'",
    ),
    "a zone twice": (
        changed(PORTS, "ports: 80\n  zones: [us-east-1a, us-east-1a]"),
        "7:23: resources.zones[1]: us-east-1a stands in the list twice: remove one",
    ),
    "a zone outside of the regions": (
        changed(PORTS, "ports: 80\n  regions: [eu-west-1]\n  zones: [us-east-1a]"),
        "8:11: resources.zones[0]: us-east-1a is in none of the regions eu-west-1",
    ),
    "a region that is a name": (
        changed(PORTS, "ports: 80\n  regions: [Ireland]"),
        "7:13: resources.regions[0]: expected a region such as us-east-1, got 'Ireland'",
    ),
    "no zone at all": (
        changed(PORTS, "ports: 80\n  zones: []"),
        "7:3: resources.zones: expected a list of zones, such as [us-east-1a, us-east-1b], got an empty list",
    ),
    "not a type or family": (
        changed(PORTS, "ports: 80\n  exclude: [g5.*]"),
        "7:13: resources.exclude[0]: expected a type such as g5.xlarge, or a family such as g5, got 'g5.*'",
    ),
    "everything excluded": (
        changed(ACCELERATORS, "accelerators: A10G\n  exclude: [g5]"),
        "6:3: resources.exclude: no instance type satisfies A10G:1 and the rest: exclude leaves none of "
        "g5.xlarge, g5.2xlarge, g5.4xlarge, g5.8xlarge, g5.16xlarge (excluded as g5). Ask for less.",
    ),
    "memory that no accelerator has": (
        changed(ACCELERATORS, "accelerators: T4\n  accelerator_memory: 24+\n  cpus: 4"),
        "6:3: resources.accelerator_memory: no instance type satisfies T4:1 and the rest: "
        "accelerator_memory 24+ leaves none of g4dn.xlarge, g4dn.2xlarge, g4dn.4xlarge, g4dn.8xlarge, "
        "g4dn.16xlarge (16 GB). "
        "Ask for less.",
    ),
    "instance type that is excluded": (
        changed(ACCELERATORS, "instance_types: [g5.xlarge, g6.xlarge]\n  exclude: [g5]"),
        "5:20: resources.instance_types[0]: g5.xlarge doesn't satisfy exclude (excluded as g5): "
        "change one of the two",
    ),
    "empty run": (
        changed(RUN, "run: ' '"),
        "7:1: run: expected a bash script, such as: run: python3 serve.py --port $PORT, got ' '",
    ),
    "env without a value": (
        GOOD + "envs:\n  HF_TOKEN:",
        "9:3: envs.HF_TOKEN: has no value: give it with --env NAME=VALUE or --env-file (for cdk: "
        '-c env=NAME=VALUE), or write "" for an empty one; what must stay secret belongs under `secrets`',
    ),
    "env that is a list": (
        GOOD + "envs:\n  A: [1]",
        "9:3: envs.A: expected text or a number, got a list",
    ),
    "env name": (
        GOOD + "envs:\n  MODEL-NAME: x",
        "9:3: envs.MODEL-NAME: expected a name of letters, digits and _, as in MODEL_NAME",
    ),
    "env that SpotRelay sets": (
        GOOD + "envs:\n  PORT: 80",
        "9:3: envs.PORT: is set by SpotRelay (is resources.ports): use another name",
    ),
    "env with a control character": (
        GOOD + 'envs:\n  BELL: "\\a"',
        "9:3: envs.BELL: control characters other than tab and newline can't stand in an environment "
        "variable",
    ),
    "secret that is no parameter": (
        GOOD + "secrets:\n  HF_TOKEN: /abc+d=",
        "9:3: secrets.HF_TOKEN: "
        "expected the name of an SSM parameter, such as /spotrelay/llama3/hf-token, got '/abc+d='",
    ),
    "env and secret": (
        GOOD + "envs: {A: 1}\nsecrets: {A: /a}",
        "9:11: secrets.A: stands under envs, too: remove one",
    ),
    "name of nothing": (
        GOOD + "name: 模型",
        "8:1: name: name has no letter or digit that AWS takes, got '模型': choose one of lower-case "
        "letters, digits and hyphens",
    ),
    "name of our own": (
        GOOD + "name: Services",
        "8:1: name: name 'Services' is no service's name: SpotRelay keeps parameters of its own below "
        "/spotrelay/services, where this service's secrets would lie: choose another one",
    ),
    "name of the control plane": (
        GOOD + "name: control-plane",
        "8:1: name: name 'control-plane' is no service's name: SpotRelay keeps parameters of its own below "
        "/spotrelay/control-plane, where this service's secrets would lie: choose another one",
    ),
    "name of another type": (GOOD + "name: 8", "8:1: name: expected text, got 8"),
    "probe variable unknown": (
        changed(
            REPLICAS, "replicas: 2\n  readiness_probe:\n    path: /v1\n    post_data:\n      model: $MODEL"
        )
        + "envs: {MODEL_NAME: x}",
        "6:7: service.readiness_probe.post_data.model: $MODEL isn't defined under envs "
        "(did you mean MODEL_NAME?): define it there, or write $$ for a dollar sign",
    ),
    "probe with a lone dollar": (
        changed(REPLICAS, "replicas: 2\n  readiness_probe: {path: /v1, post_data: {q: '5 $ a day'}}"),
        "3:44: service.readiness_probe.post_data.q: "
        "a $ without a name in '5 $ a day': write $$ for a dollar sign",
    ),
    "probe with a secret": (
        changed(REPLICAS, "replicas: 2\n  readiness_probe: {path: /v1, post_data: {q: $KEY}}")
        + "secrets: {KEY: /key}",
        "3:44: service.readiness_probe.post_data.q: "
        "$KEY is a secret, and this is stored in the clear: leave it out",
    ),
    "probe without a path": (
        changed(REPLICAS, "replicas: 2\n  readiness_probe: v1/models"),
        "3:3: service.readiness_probe.path: expected a path such as /v1/chat/completions, got 'v1/models'",
    ),
    "probe data that isn't JSON": (
        changed(REPLICAS, "replicas: 2\n  readiness_probe: {path: /v1, post_data: '{'}"),
        "3:32: service.readiness_probe.post_data: expected fields, or the same as JSON text: not JSON: "
        "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ),
    "two GET checks": (
        changed(REPLICAS, "replicas: 2\n  readiness_probe: /ready\n  health_check: /health"),
        "4:3: service.health_check: a readiness probe without post_data is the load balancer's own "
        "check, and that is /ready: remove one of the two, or give the probe post_data",
    ),
    "when to leave": (
        changed(REPLICAS, "replicas: 2\n  on_warning: later"),
        "3:3: service.on_warning: expected needed, serve_on or leave, got 'later'",
    ),
    "idle time-out": (
        changed(REPLICAS, "replicas: 2\n  idle_timeout_seconds: 4001"),
        "3:3: service.idle_timeout_seconds: expected whole seconds from 1 to 4000, got 4001",
    ),
    **{
        f"a start of {said}": (
            f"{GOOD}spotrelay: {{start_within: {said}}}\n",
            "8:13: spotrelay.start_within: expected whole seconds from 30, before which no instance can"
            f" serve, to 3600, such as 100, 100s or 2m, got {shown}",
        )
        for said, shown in {
            "29": "29",
            "29s": "29",
            "61m": "3660",
            "1h": "'1h'",
            "'100'": "'100'",
            "''": "''",
            "1.5": "1.5",
            "true": "true",
            "[60]": "a list",
            "60s1m": "'60s1m'",
        }.items()
    },
    "drain time": (
        changed(REPLICAS, "replicas: 2\n  drain_seconds: 0"),
        "3:3: service.drain_seconds: expected whole seconds from 1 to 600, got 0",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_each_bad_value_has_its_own_clear_error(name: str, problems: Refuser) -> None:
    """A file that is wrong in one place gives exactly one error, with file, line, field and remedy."""
    text, expected = BAD[name]
    assert [str(problem) for problem in problems(text)] == [f"chat.yaml:{expected}"]


def test_an_unknown_accelerator_names_the_nearest_and_all_that_there_are(problems: Refuser) -> None:
    """Accelerators that no instance type has are refused with a suggestion and the list."""
    (problem,) = problems(changed(ACCELERATORS, "accelerators: [L4:1, A10X:1]"))
    assert str(problem).startswith(
        "chat.yaml:5:24: resources.accelerators[1]: "
        "no instance type has 'A10X' (did you mean A10G?): there are A100,"
    )
    assert "RTX-PRO-6000" in problem.message


def test_spot_without_a_pool_says_which_requirement_leaves_which_type_out(problems: Refuser) -> None:
    """Requirements that no instance type satisfies together are named with the types that each excludes."""
    (problem,) = problems(changed(ACCELERATORS, "accelerators: A10G:1\n  cpus: 96+"))
    assert str(problem) == (
        "chat.yaml:6:3: resources.cpus: "
        "no instance type satisfies A10G:1 and the rest: cpus 96+ leaves none of "
        "g5.xlarge (4 vCPU), g5.2xlarge (8 vCPU), g5.4xlarge (16 vCPU), g5.8xlarge (32 vCPU), "
        "g5.16xlarge (64 vCPU). Ask for less."
    )


def test_two_requirements_that_exclude_each_other_are_both_named(problems: Refuser) -> None:
    """Where no single requirement is to blame, each is named with what it leaves out."""
    (problem,) = problems(changed(ACCELERATORS, "accelerators: A10G:1\n  cpus: 8+\n  memory: 16"))
    assert (problem.line, problem.field) == (4, "resources")
    assert "cpus 8+ leaves none of g5.xlarge (4 vCPU); memory 16 leaves none of g5.2xlarge (32 GiB)" in str(
        problem
    )


def test_all_problems_are_reported_at_once_in_the_order_of_their_lines(problems: Refuser) -> None:
    """Several errors in one file come together, sorted by line."""
    resources = "resources:\n  acelerators: T4\n  accelerators: A10X\n  ports: 0\n"
    text = f"service:\n  replicas: -1\n{resources}env: {{}}\nrun: x\n"
    assert [(p.line, p.field) for p in problems(text)] == [
        (2, "service.replicas"),
        (4, "resources.acelerators"),
        (5, "resources.accelerators"),
        (6, "resources.ports"),
        (7, "env"),
    ]


def test_an_environment_that_does_not_fit_into_user_data_is_refused_with_its_size(problems: Refuser) -> None:
    """EC2's 16 KiB are checked before anything is deployed; only scripts may be elsewhere."""
    (problem,) = problems(GOOD + "envs:\n" + "".join(f"  A{n}: {'x' * 90}\n" for n in range(200)))
    assert (problem.line, problem.field) == (8, "envs")
    assert "bytes, and EC2 takes 16384: put long values into a file of `workdir`" in problem.message


def test_a_file_name_of_nothing_asks_for_a_name(tmp_path: Path) -> None:
    """The file's stem serves as name; where nothing of it can, the error says so."""
    file = tmp_path / "模型.yaml"
    file.write_text(GOOD, encoding="utf-8")
    with pytest.raises(InvalidServiceFileError, match=r":1:1: name: the file's own name, as it says no"):
        load(file)


NOT_YAML = {
    "a colon too many": ("a: b: c", "chat.yaml:1:5: not YAML: mapping values are not allowed here"),
    "an open bracket": ("service: [1,\n", "chat.yaml:2:1: not YAML: "),
    "a tab": (
        "service:\n\treplicas: 1",
        "chat.yaml:2:1: not YAML: found character '\\t' that cannot start any token "
        "while scanning for the next token: indent with spaces, not tabs",
    ),
    "two documents": (
        "a: 1\n---\nb: 1",
        "chat.yaml:2:1: a second document begins here: one service per file, split it",
    ),
    "a control character": ("a: \x01", "chat.yaml: not YAML: unacceptable character #x0001"),
    "a list": ("- a", "chat.yaml:1:1: expected fields (`service:`, `resources:`, `run:` …), got a list"),
    "a word": ("hello", "chat.yaml:1:1: expected fields (`service:`, `resources:`, `run:` …), got 'hello'"),
    "a tag": ("a: !vault x", "chat.yaml:1:4: a: YAML tag !vault has no meaning in a service file: remove it"),
    "a merge key": (
        "a: &a {b: 1}\nc:\n  <<: *a",
        "chat.yaml:3:3: c: merge keys (<<) are not supported: write the fields out",
    ),
    "a mapping as key": ("? {a: 1}\n: 2", "chat.yaml:1:3: expected a plain name as key"),
    "an alias of itself": ("a: &a [*a]", "chat.yaml:1:4: too large once its aliases are followed"),
    "nesting without end": ("[" * 5000, "chat.yaml: nested too deeply"),
}


@pytest.mark.parametrize("name", NOT_YAML)
def test_what_is_not_yaml_is_placed_by_line_and_column(name: str, problems: Refuser) -> None:
    """Text that isn't YAML, or YAML that has no place here, is refused where it stands."""
    text, expected = NOT_YAML[name]
    (problem,) = problems(text)
    assert str(problem).startswith(expected)


def test_every_duplicate_key_is_reported_with_the_line_of_the_first(problems: Refuser) -> None:
    """Keys that stand twice are all found, in any depth."""
    assert [str(p) for p in problems("run: x\nservice:\n  replicas: 1\n  replicas: 2\nrun: y\n")] == [
        "chat.yaml:4:3: service.replicas: stands here twice, first in line 3: remove one",
        "chat.yaml:5:1: run: stands here twice, first in line 1: remove one",
    ]


def test_an_empty_file_says_what_belongs_in_it(problems: Refuser) -> None:
    """An empty file, or one of comments only, is no service."""
    for text in ("", "\n# later\n"):
        assert [str(p) for p in problems(text)] == [
            "chat.yaml: is empty: expected at least `service`, `resources` and `run`"
        ]


def test_a_file_that_is_not_utf_8_is_placed_by_line(problems: Refuser) -> None:
    """Latin-1 text is refused with the line of the first byte that isn't UTF-8."""
    assert [str(p) for p in problems("run: x\n# café".encode("latin-1"))] == [
        "chat.yaml:2: not UTF-8 (byte 0xe9): save the file with UTF-8 encoding"
    ]


def test_a_huge_file_is_refused_unread(problems: Refuser) -> None:
    """Something that can't be a service file isn't parsed."""
    (problem,) = problems(b"#" * (MAX_FILE_BYTES + 1))
    assert "that is no service file" in problem.message


def test_a_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    """A slip in a file name is met with the file that was probably meant."""
    (tmp_path / "llama3.yaml").write_text(GOOD, encoding="utf-8")
    with pytest.raises(
        UnreadableServiceFileError, match=r"lama3.yaml: no such file: did you mean .*/llama3.yaml\?"
    ):
        load(tmp_path / "lama3.yaml")
    with pytest.raises(UnreadableServiceFileError, match=r"no such file$"):
        load(tmp_path / "none" / "x.yaml")


def test_a_directory_is_no_service_file(tmp_path: Path) -> None:
    """The operating system's reason is passed on."""
    with pytest.raises(UnreadableServiceFileError, match="can't be read: Is a directory"):
        load(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=150)
@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(lambda text: (GOOD + text).encode())))
@example(b"? ")
@example(b"a: 0x")
@example(b"service: {replicas: " + b"9" * 5000 + b"}")
def test_no_content_whatever_gives_anything_but_a_service_or_its_problems(
    tmp_path: Path, content: bytes
) -> None:
    """Whatever bytes a file holds, loading gives a service or a ServiceFileError, never another exception."""
    file = tmp_path / "any.yaml"
    file.write_bytes(content)
    try:
        outcome: object = load(file).name
    except ServiceFileError as error:
        outcome = error.problems
    assert outcome


def test_the_kinds_of_errors_tell_text_from_structure_from_content(tmp_path: Path) -> None:
    """Callers can tell a file that can't be read from one that isn't YAML and one that isn't a service."""
    file = tmp_path / "chat.yaml"
    kinds = {
        "": UnreadableServiceFileError,
        "a: b: c": MalformedServiceFileError,
        "a: 1": InvalidServiceFileError,
    }
    for text, kind in kinds.items():
        file.write_text(text, encoding="utf-8")
        with pytest.raises(kind):
            load(file)
