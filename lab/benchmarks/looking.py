"""`spotrelay status` of a hundred replicas, as a process, beside a script of boto3's that asks the same.

On a local cloud with the table and the documents that it asks for, and nothing that runs: no
function, no instance. What it takes is the command's own start, boto3's, and the answers' way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import boto3
from botocore import xform_name

from lab.benchmarks.cold_start import QUICKEST, SAMPLES, TRIES, quickest
from lab.benchmarks.figures import Figure, Row, Tell, ratio
from lab.benchmarks.running import ROOT
from lab.demo.environment import clean
from lab.demo.processes import Process
from lab.local.environment import REGION
from spotrelay.operator.look.access import ControlPlane
from spotrelay.operator.look.reading import SnapshotReader
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.aws.table import Table
from spotrelay.plane.core.names import (
    CONTROL_PLANE_PARAMETER,
    TABLE_PARTITION_KEY,
    TABLE_SORT_KEY,
    service_parameter,
)
from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.spec import ServiceSpec

SERVICE, REPLICAS = "demo", 100

MOST_S = 0.75
"""For whoever is paged."""

MOST_HELP_S = 0.3
"""For whoever looks for the command's name: what is shorter nobody notices."""

READY_WITHIN_S = 60.0

TABLE = "spotrelay"

BARE = """
import json, sys, boto3
session = boto3.Session()
asked = json.load(open(sys.argv[1]))
clients = {name: session.client(name) for name in dict.fromkeys(name for name, _, _ in asked)}
for name, operation, parameters in asked:
    answer = getattr(clients[name], operation)(**parameters)
    print(json.dumps(answer, indent=2, default=str))
"""
"""The necessary calls, and what they answer as it comes."""


def measure(tell: Tell) -> Sequence[Figure]:
    """The command, the script and the help, in turn."""
    with tempfile.TemporaryDirectory(prefix="spotrelay-bench-") as directory:
        here = Path(directory)
        tell(0, 1, "the local cloud starts")
        with _local_cloud(here) as env:
            tell(0, 1, f"a service of {REPLICAS} replicas")
            session = _session(env)
            _deploy(Clients(session))
            asked = here / "asked.json"
            asked.write_text(json.dumps(_asked(session)), encoding="utf-8")
            commands = {
                "ours": [sys.executable, "-m", "spotrelay", "status", SERVICE],
                "bare": [sys.executable, "-c", BARE, str(asked)],
                "help": [sys.executable, "-m", "spotrelay", "--help"],
            }
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
            runs = SAMPLES * TRIES
            for run in range(-1, runs):  # the first compiles, and reads the files into memory
                tell(max(run, 0), runs, "looks")
                for name in list(commands)[:: 1 if run % 2 else -1]:
                    result = _run(commands[name], env)
                    if run >= 0:
                        taken[name].append(result)
    walls = {name: quickest([wall for wall, _ in results]) for name, results in taken.items()}
    cpus = {name: quickest([cpu for _, cpu in results]) for name, results in taken.items()}
    return figures(walls, cpus)


def figures(walls: Mapping[str, Sequence[float]], cpus: Mapping[str, Sequence[float]]) -> list[Figure]:
    """Of each sample's quickest, in seconds: `ours`, `bare` and `help`."""
    return [
        Figure(
            "cpu_to_bare",
            ratio(cpus["ours"], cpus["bare"]),
            "x",
            "the command's processor time, to the script's",
            at_most=2,
            tolerance=0.15,
        ),
        Figure("to_bare", ratio(walls["ours"], walls["bare"]), "x", "the same by the clock"),
        Figure("ours", median(walls["ours"]), "s", QUICKEST, at_most=MOST_S),
        Figure("ours_cpu", median(cpus["ours"]), "s", "of it, the process's own"),
        Figure("bare", median(walls["bare"]), "s", QUICKEST),
        Figure("bare_cpu", median(cpus["bare"]), "s", "of it, the process's own"),
        Figure("help", median(walls["help"]), "s", "`spotrelay --help`, likewise", at_most=MOST_HELP_S),
    ]


def _run(command: Sequence[str], env: Mapping[str, str]) -> tuple[float, float]:
    """Seconds by the clock, and of the processor."""
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, env=dict(env), stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    took_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)  # or it would be waited for once more
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return took_s, used.ru_utime + used.ru_stime


@contextmanager
def _local_cloud(directory: Path) -> Iterator[Mapping[str, str]]:
    """The environment of a process that asks it."""
    env = {
        **{name: value for name, value in clean(os.environ).items() if name != "PYTHONDONTWRITEBYTECODE"},
        # As an installed command has it: compiled.
        "PYTHONPYCACHEPREFIX": str(directory / "compiled"),
        "PYTHONPATH": str(ROOT),
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    ready = directory / "ready.json"
    command = [sys.executable, "-m", "lab.local", "--port", "0", "--ready-file", str(ready)]
    cloud = Process(command, directory / "local-cloud.log", env, ROOT)
    try:
        deadline = time.monotonic() + READY_WITHIN_S
        while not ready.exists():
            if cloud.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((directory / "local-cloud.log").read_text(encoding="utf-8"))
            time.sleep(0.05)
        yield {
            **env,
            "AWS_ENDPOINT_URL": str(json.loads(ready.read_text(encoding="utf-8"))["endpoint"]),
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }
    finally:
        cloud.stop()


def _session(env: Mapping[str, str]) -> boto3.Session:
    os.environ.update({name: value for name, value in env.items() if name.startswith("AWS_")})
    os.environ["no_proxy"] = env["no_proxy"]
    return boto3.Session()


def _deploy(clients: Clients) -> None:
    """The table and the documents, without a stack: nothing here acts on them."""
    clients.dynamodb.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in (TABLE_PARTITION_KEY, TABLE_SORT_KEY)
        ],
        KeySchema=[
            {"AttributeName": TABLE_PARTITION_KEY, "KeyType": "HASH"},
            {"AttributeName": TABLE_SORT_KEY, "KeyType": "RANGE"},
        ],
    )
    queue_url = clients.sqs.create_queue(QueueName="ticks")["QueueUrl"]
    subnets = clients.ec2.describe_subnets()["Subnets"][:2]
    spec = ServiceSpec(
        service=SERVICE,
        version=1,
        replicas=REPLICAS,
        use_spot=True,
        instance_types=("g5.xlarge", "g6.xlarge"),
        ordered=False,
        subnets={subnet["SubnetId"]: subnet["AvailabilityZone"] for subnet in subnets},
        launch_template_id="lt-1",
        target_group_arn=f"arn:aws:elasticloadbalancing:{REGION}:000000000000:targetgroup/{SERVICE}/1",
        address=f"http://{SERVICE}.{REGION}.elb.amazonaws.com",
        port=8081,
    )
    for name, value in (
        (CONTROL_PLANE_PARAMETER, {"table": TABLE, "tick_queue_url": queue_url}),
        (service_parameter(SERVICE), spec.to_dict()),
    ):
        clients.ssm.put_parameter(Name=name, Value=json.dumps(value), Type="String")
    store = DynamoStore(Table(clients, TABLE))
    for before in range(0, REPLICAS, Changes.MAX_ROWS):
        ids_ = range(before + 1, min(before + Changes.MAX_ROWS, REPLICAS) + 1)
        store.commit(
            Changes(SERVICE, highest_id=(before, ids_[-1]), create=tuple(_replica(id_) for id_ in ids_))
        )


def _replica(id_: int) -> Replica:
    now = datetime.now(UTC)
    requested = Replica.requested(SERVICE, id_, 1, now, reason="wanted")
    return replace(
        requested,
        state=ReplicaState.READY,
        entered={**requested.entered, ReplicaState.READY: now},
        offering=Offering(CapacityPool(REGION, f"{REGION}a", "g5.xlarge"), PurchaseOption.SPOT),
        instance_id=f"i-{id_:017x}",
    )


def _asked(session: boto3.Session) -> list[tuple[str, str, dict[str, Any]]]:
    """What a status asks: client, method, parameters."""
    asked: list[tuple[str, str, dict[str, Any]]] = []

    def note(params: dict[str, Any], model: Any, **_: Any) -> None:
        service, method = model.service_model.service_name, xform_name(model.name)
        asked.append((service, method, dict(params)))

    session.events.register("before-parameter-build", note)
    plane = ControlPlane.found_with(session)
    assert plane is not None
    seen = SnapshotReader(plane).read(SERVICE, datetime.now(UTC))
    if len(seen.present) != REPLICAS or seen.missing:
        raise RuntimeError(f"{len(seen.present)} replicas are seen, and not: {seen.missing}")
    return asked


ROW = Row("status", f"spotrelay status of {REPLICAS} replicas, beside boto3 asking the same", 60, measure)
