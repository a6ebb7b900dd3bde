"""`aws.runtime`: the controller over AWS, whole."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from importlib.metadata import packages_distributions

import pytest

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.compose_survey import surveying
from spotrelay.plane.aws.fleet import Ec2Fleet
from spotrelay.plane.aws.runtime import MissingSettingError, compose, new_id
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.aws.table import Table
from spotrelay.plane.aws.telemetry import PowertoolsTelemetry
from spotrelay.plane.core.names import SERVICES_PATH, Env, service_parameter
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.events import InterruptionWarning
from spotrelay.plane.memory import MemoryTelemetry
from tests.contract.conftest import TABLE
from tests.contract.network import deployed_spec
from tests.contract.rows import NOW

ENV: dict[str, str] = {
    Env.TABLE: TABLE,
    Env.TICK_QUEUE_URL: "https://ticks",
    Env.LEAVE_QUEUE_URL: "https://leaves",
    Env.DEAD_LETTER_QUEUE_URL: "https://dead",
    Env.SERVICES_PATH: SERVICES_PATH,
}


@pytest.mark.parametrize("missing", ENV)
def test_a_missing_setting_is_named(missing: str) -> None:
    """A setting that the environment lacks is named, with the remedy, before anything is called."""
    emptied: list[dict[str, str]] = [{}, {missing: ""}]
    for value in emptied:
        env = {name: setting for name, setting in ENV.items() if name != missing} | value
        with pytest.raises(MissingSettingError, match=f"{missing} .*deploy"):
            compose(env, MemoryTelemetry(), Clients())


@pytest.mark.parametrize("missing", [Env.TABLE, Env.SERVICES_PATH, Env.TICK_QUEUE_URL])
def test_a_survey_needs_table_services_and_ticks_only(missing: str) -> None:
    """The survey is put together from three settings; one that is missing is named."""
    needed = (Env.TABLE, Env.SERVICES_PATH, Env.TICK_QUEUE_URL)
    env: dict[str, str] = {name: ENV[name] for name in needed}
    assert surveying(env, PowertoolsTelemetry())
    with pytest.raises(MissingSettingError, match=f"{missing} .*deploy"):
        surveying(env | {missing: ""}, PowertoolsTelemetry())


def test_ids_sort_by_time() -> None:
    """IDs of later milliseconds are greater, no two are equal, and EC2 takes them as client tokens."""
    ids = [new_id(NOW + timedelta(milliseconds=n)) for n in range(100)]
    assert sorted(ids) == ids
    assert len({new_id(NOW) for _ in range(1000)}) == 1000
    assert all(id_.isascii() and len(id_) <= 64 for id_ in ids)


def test_a_fleet_rises_and_survives_a_warning(
    aws: Clients, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With real adapters: three replicas become ready, one is warned and drained, another takes its place."""
    # moto has no filter by a Spot request's status, see test_ec2_fleet for it.
    monkeypatch.setattr(Ec2Fleet, "warned", lambda *_: {})
    spec = deployed_spec(aws)
    parameter = service_parameter("demo")
    aws.ssm.put_parameter(Name=parameter, Value=json.dumps(spec.to_dict()), Type="String")
    queues = {
        str(name): aws.sqs.create_queue(QueueName=name.lower())["QueueUrl"]
        for name in (Env.TICK_QUEUE_URL, Env.LEAVE_QUEUE_URL)
    }
    env: dict[str, str] = {**ENV, **queues}
    control = compose(env, MemoryTelemetry(), aws).controller
    store = DynamoStore(table)
    for _ in range(3):
        control.tick("demo")
    ready = store.load("demo").replicas
    assert {r.state for r in ready.values()} == {ReplicaState.READY}
    assert ready.keys() == {1, 2, 3}
    warned = ready[2].instance_id
    assert warned is not None
    assert control.handle([InterruptionWarning(warned, NOW, "terminate")]) == []
    rows = store.load("demo").replicas
    assert (rows[2].state, rows[2].replaced_by) == (ReplicaState.DRAINING, 4)
    assert (rows[4].state, rows[4].replaces) == (ReplicaState.PROVISIONING, 2)
    targets = aws.elbv2.describe_target_health(TargetGroupArn=spec.target_group_arn)
    assert warned not in {t["Target"]["Id"] for t in targets["TargetHealthDescriptions"]}
    control.handle([InterruptionWarning(warned, NOW, "terminate")])
    assert store.load("demo").replicas.keys() == {1, 2, 3, 4}


def test_imports_stay_light() -> None:
    """What every cold start pays for: no pydantic, no CDK, none of Powertools' heavier parts, no survey."""
    heavy = ["pydantic", "aws_cdk", "aws_xray_sdk", "aws_lambda_powertools.utilities.idempotency", "moto"]
    heavy += ["spotrelay.plane.placement.surveying", "spotrelay.plane.aws.surveyor"]
    program = (
        "import sys, spotrelay.plane.aws.runtime, spotrelay.plane.aws.telemetry;"
        "from spotrelay.plane.core.names import Metric;"
        "telemetry = spotrelay.plane.aws.telemetry.PowertoolsTelemetry();"
        "telemetry.record('imported'); telemetry.count(Metric.CONFLICTS); telemetry.flush();"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_powertools_waits_for_the_first_line() -> None:
    """Functions are imported, count and write what they counted without it; the first record brings it."""
    program = (
        "import sys, lambdas.on_signal, lambdas.reconcile, lambdas.survey;"
        "from spotrelay.plane.aws.runtime import telemetry;"
        "from spotrelay.plane.core.names import Metric;"
        "is_there = lambda: 'aws_lambda_powertools' in sys.modules;"
        "telemetry.count(Metric.CONFLICTS); telemetry.flush(); before = is_there();"
        "telemetry.record('launch'); print(before, is_there(), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["False", "True"]


def test_a_cold_start_collects_no_garbage_to_speak_of() -> None:
    """Importing a function, boto3 included, runs the collector a few times, not a hundred as by default."""
    program = (
        "import gc; runs = []; gc.callbacks.append(lambda phase, info: runs.append(phase));"
        "import lambdas.on_signal; print(runs.count('start'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 10


FAST_PATH = {
    "lambdas": "on_signal",
    "spotrelay": "",
    "spotrelay.plane": "",
    "spotrelay.plane.aws": (
        "clients dead_letters errors fleet items loads notices prober remedies router runtime"
        " services store table telemetry ticker"
    ),
    "spotrelay.plane.control": "controller intake performing reporting signals",
    "spotrelay.plane.core": "held incidents instances names pools ports replica rows slots spec timing",
    "spotrelay.plane.events": "interruption rebalance state_change ticks",
    "spotrelay.plane.placement": "cooldowns launching plan",
    "spotrelay.plane.serving": "changes failures interruption observation rollout slots standby steps",
}
"""What a cold start of the function of signals loads of ours, by package. A warning waits for each of these:
what is added here must be something that a warning needs. What ticks need, and what only some documents have,
is imported where it is used."""

OF_OTHERS = frozenset({"botocore", "certifi", "dateutil", "jmespath", "six", "urllib3"})
"""The packages that it loads of others. Not boto3, which is a tenth more, nor Powertools, which is imported
with the first line to log, after the launch. certifi is botocore's where it is installed: not on Lambda."""


def test_a_warning_waits_for_what_it_needs() -> None:
    """The function of signals loads these modules of ours and no others, and botocore with what it needs."""
    loaded = loaded_by("import lambdas.on_signal")
    ours = {name for name in loaded if name.split(".")[0] in ("lambdas", "spotrelay")}
    expected = {f"{package}.{name}" for package, names in FAST_PATH.items() for name in names.split()}
    assert ours == expected | FAST_PATH.keys()
    installed = packages_distributions().keys() - {"lambdas", "spotrelay"}
    assert {name for name in loaded if name in installed and not name.startswith("_")} == OF_OTHERS


def test_ticks_load_theirs_before_the_first() -> None:
    """A tick that a warning may wait behind imports nothing of what decides it."""
    names = [f"spotrelay.plane.control.{name}" for name in ("ticks", "gathering", "probing", "notifying")]
    assert loaded_by("import lambdas.reconcile").issuperset([*names, "spotrelay.plane.serving.reconcile"])


def loaded_by(program: str) -> set[str]:
    """The modules that a program loads in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())
