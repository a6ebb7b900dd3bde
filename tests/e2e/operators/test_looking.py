"""Status, history, explanation and cost against a fleet that loses replicas."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lab.demo.operator import Operator
from spotrelay.plane.accounting.spending import HOUR
from spotrelay.plane.core.names import WIDGET_FUNCTION
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.timing import seconds
from tests.e2e.faults.bench import Bench
from tests.e2e.operators.conftest import Command, serving

OF_STATUS = (
    "ssm:GetParameters", "dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query",
    "cloudwatch:DescribeAlarms",
)  # fmt: skip


def test_a_whole_fleet_is_fine(demo: Bench, spotrelay: Command) -> None:
    """A check exits with 0, and the table has each replica with its pool and price."""
    code, out, _ = spotrelay("status", "demo", "--check")
    assert code == 0
    assert "WHOLE 3/3" in out
    (found,) = spotrelay.json("status", "demo")["services"]
    assert found["is_whole"]
    ready = {r.id for r in demo.watch.look().ready}
    assert {row["id"] for row in found["replicas"] if row["state"] == "READY"} == ready
    assert found["usd_per_hour"] > 0
    assert found["share_saved"] > 0.3
    assert found["address"].startswith("http://")


def test_a_loss_without_a_way_back_is_not_whole(demo: Bench, spotrelay: Command) -> None:
    """Neither Spot nor on-demand has any: a check exits with 1 and quotes EC2; later it is whole again."""
    victim = demo.victim()
    bring_back = demo.dry_up()
    try:
        demo.warn(victim)
        demo.watch.until(
            lambda seen: any(r.is_fallback and r.attempts for r in seen.present), "a refused fallback", 60
        )
        code, out, _ = spotrelay("status", "demo", "--check")
        assert code == 1
        assert "NOT WHOLE 2/3" in out
        assert "InsufficientInstanceCapacity" in out
        assert f"replica {victim.id} was lost at" in out
        rings(demo, spotrelay, "CannotLaunch", is_to_ring=True)
    finally:
        bring_back()
    serving(demo)
    code, _, _ = spotrelay("status", "demo", "--check")
    assert code == 0
    rings(demo, spotrelay, "CannotLaunch", is_to_ring=False)


def rings(demo: Bench, spotrelay: Command, alarm: str, *, is_to_ring: bool) -> None:
    """Let minutes pass for CloudWatch and for what is on record, a tick or two in each, until it is so."""

    def is_so() -> bool:
        demo.pass_minutes()
        (found,) = spotrelay.json("status", "demo")["services"]
        return (alarm in found["alarms"]) is is_to_ring

    demo.eventually(is_so, f"{alarm} {'rings' if is_to_ring else 'has cleared'}")


def test_an_instance_that_somebody_terminates_was_lost_without_a_warning(
    demo: Bench, operator: Operator, spotrelay: Command
) -> None:
    """The history says so, with what replaced it and when the fleet was whole."""
    victim = demo.victim()
    operator.session.client("ec2").terminate_instances(InstanceIds=[victim.instance_id])
    demo.until_state(victim.id, ReplicaState.TERMINATED)
    serving(demo)
    (loss,) = (one for one in spotrelay.json("history", "demo")["losses"] if one["replica"] == victim.id)
    assert (loss["is_warned"], loss["warned_at"]) == (False, None)
    assert loss["replaced_by"] > victim.id
    assert loss["whole_s"] >= loss["ready_s"] > loss["launched_s"]
    _, out, _ = spotrelay("history", "demo")
    line = next(line for line in out.splitlines() if f" {victim.id}  {victim.offering.pool}" in line)  # type: ignore[union-attr]
    assert "no warning" in line


def test_a_replacement_is_explained(demo: Bench, spotrelay: Command) -> None:
    """It names the pool that was lost and why that was left out, and what EC2 answered."""
    victim = demo.victim()
    demo.warn(victim)
    demo.until_state(victim.id, ReplicaState.DRAINING)
    seen = demo.watch.until(
        lambda seen: any(r.instance_id for r in seen.replacements(victim.id)), "a replacement", 60
    )
    (replacement,) = seen.replacements(victim.id)
    assert victim.offering
    assert replacement.offering
    code, out, _ = spotrelay("explain", "demo", str(replacement.id))
    assert code == 0
    assert f"it replaces replica {victim.id} in {victim.offering}, which EC2 took back" in out
    assert f"{victim.offering.pool} (" in out.split("left out", 1)[1], "why it was left out"
    assert "interruption warning" in out
    assert f"EC2 answered   {replacement.offering}" in out
    code, _, err = spotrelay("explain", "demo", "99999")
    assert (code, "demo has no replica 99999: known are" in err) == (2, True)


def _hand_sum(rows: list[Replica], prices: dict[str, Any], now: datetime) -> float:
    """Rows times prices: each instance from its launch to its end, at the prices that EC2 tells."""
    total = 0.0
    for row in rows:
        if row.offering is None or ReplicaState.PROVISIONING not in row.entered:
            continue
        begin = row.entered[ReplicaState.PROVISIONING]
        end = row.since if row.state.is_ended else now
        pool = row.offering.pool
        if row.offering.purchase_option is PurchaseOption.ON_DEMAND:
            total += (end - begin) / HOUR * prices["on-demand"][pool.instance_type]
            continue
        if row.is_warned and row.state is ReplicaState.TERMINATED and end - begin <= HOUR:
            continue  # EC2 doesn't charge for what it takes back within an hour
        at = begin
        while at < end:
            step = min(end, at + seconds(1))
            changes = prices["spot"][pool.zone, pool.instance_type]
            price = [usd for since, usd in changes if since <= at][-1]
            total += (step - at) / HOUR * price
            at = step
    return total


def _prices(operator: Operator, rows: list[Replica], now: datetime) -> dict[str, Any]:
    """Of the rows' types: Spot as EC2's own price history has it, on-demand as surveyed."""
    types = sorted({r.offering.pool.instance_type for r in rows if r.offering})
    history = operator.session.client("ec2").describe_spot_price_history(
        InstanceTypes=types, ProductDescriptions=["Linux/UNIX"], StartTime=now - seconds(86_400)
    )["SpotPriceHistory"]
    spot: dict[tuple[str, str], list[tuple[datetime, float]]] = {}
    for one in sorted(history, key=lambda one: one["Timestamp"]):
        pool = one["AvailabilityZone"], one["InstanceType"]
        spot.setdefault(pool, []).append((one["Timestamp"], float(one["SpotPrice"])))
    survey = operator.store.recall("demo", "us-east-1", datetime.now(UTC)).survey
    assert survey
    return {"spot": spot, "on-demand": survey.on_demand_prices}


def test_the_cost_is_rows_times_prices(demo: Bench, operator: Operator, spotrelay: Command) -> None:
    """Within one per cent of a sum made by hand from the rows and EC2's own price history."""
    found = spotrelay.json("cost", "demo", "--days", "2")
    now = datetime.fromisoformat(found["end"])
    rows = list(demo.watch.look().replicas.values())
    expected = _hand_sum(rows, _prices(operator, rows, now), now)
    assert expected > 0
    assert found["spot_usd"] + found["on_demand_usd"] == pytest.approx(expected, rel=0.01)
    assert found["listed_usd"] > found["spot_usd"]
    assert found["disk_usd"] > 0


@pytest.mark.parametrize(
    ("denied", "word"), [("cloudwatch:DescribeAlarms", "alarms"), ("dynamodb:GetItem", "pools and prices")]
)
def test_a_permission_that_is_missing_costs_its_own_part_alone(
    demo: Bench, spotrelay: Command, denied: str, word: str
) -> None:
    """The rest of the status is shown, the action is named, and the exit code says no access."""
    rights = [right for right in OF_STATUS if right != denied]
    spotrelay.as_role(demo.assume(f"lacks-{denied.rpartition(':')[2]}", *rights).get_credentials())
    code, out, _ = spotrelay("status", "demo")
    assert code == 3
    assert f"{word}: missing {denied}" in out
    if denied.startswith("cloudwatch"):
        assert "WHOLE 3/3" in out


def test_with_the_listed_permissions_nothing_is_missing(demo: Bench, spotrelay: Command) -> None:
    """The permissions of `OF_STATUS` are all that a status needs."""
    spotrelay.as_role(demo.assume("looks", *OF_STATUS).get_credentials())
    code, out, _ = spotrelay("status", "demo", "--check")
    assert (code, "Not read" in out) == (0, False)


def test_the_policy_for_looking_is_enough_to_look(
    demo: Bench, operator: Operator, spotrelay: Command
) -> None:
    """Every command that it is for, of whoever has it and nothing else; and it changes nothing."""
    spotrelay.as_role(demo.assume("paged").get_credentials())
    assert spotrelay("status", "demo")[0] == 3, "nothing was allowed yet"
    operator.session.client("iam").attach_role_policy(
        RoleName="paged", PolicyArn=demo.outputs["OperatorPolicy"]
    )
    replica = str(demo.victim().id)
    for words in (
        ("status",), ("history",), ("explain", replica), ("cost",), ("prices",), ("scores",), ("logs",),
        ("logs", replica),
    ):  # fmt: skip
        command, *more = words
        code, out, err = spotrelay(command, "demo", *more)
        assert (code, err) == (0, ""), words
        assert "missing" not in out, words
    code, out, err = spotrelay("request", "demo", "--prompt", "Well?")
    assert (code, "Well?" in out) == (0, True), err
    assert spotrelay("scale", "demo", "4", "--for", "5m")[0] == 3


@pytest.mark.parametrize("policy", ["OperatorPolicy", "DrillPolicy"])
@pytest.mark.parametrize("name", ["demo/TOKEN", "demo", "control-plane/TOKEN"])
def test_who_may_look_or_drill_reads_no_secret(
    demo: Bench, operator: Operator, policy: str, name: str
) -> None:
    """Secrets lie beside the documents, and only their service's instances read them."""
    secret = f"/spotrelay/{name}"
    operator.session.client("ssm").put_parameter(
        Name=secret, Value="planted", Type="SecureString", Overwrite=True
    )
    role = f"{policy}-reads-{name.replace('/', '-')}"
    session = demo.assume(role)
    operator.session.client("iam").attach_role_policy(RoleName=role, PolicyArn=demo.outputs[policy])
    ssm = session.client("ssm", endpoint_url=operator.deployment.endpoint)
    for read in (
        lambda: ssm.get_parameters(Names=[secret], WithDecryption=True),
        lambda: ssm.get_parameters_by_path(Path="/spotrelay", Recursive=True, WithDecryption=True),
        lambda: ssm.get_parameter(Name=secret, WithDecryption=True),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            read()


def test_scores_and_prices_are_shown(demo: Bench, spotrelay: Command) -> None:
    """A line for each zone and each pool that the service may use."""
    zones = {one["zone"] for one in spotrelay.json("scores", "demo")["zones"]}
    assert zones == set(demo.spec.subnets.values())
    curves = spotrelay.json("prices", "demo")["pools"]
    pools = {(curve["zone"], curve["instance_type"]) for curve in curves}
    assert pools <= {(pool.zone, pool.instance_type) for pool in demo.spec.pools}
    assert all(curve["on_demand"] > curve["now"] for curve in curves)


def test_the_dashboards_table_is_the_status(demo: Bench, operator: Operator) -> None:
    """The function that the board names draws the replicas that are there, with its own role's rights."""
    asked = json.dumps({"service": "demo", "widgetContext": {}})
    answer = operator.session.client("lambda").invoke(FunctionName=WIDGET_FUNCTION, Payload=asked)
    html = json.loads(answer["Payload"].read())
    assert "WHOLE 3/3" in html
    for replica in demo.watch.look().ready:
        assert f"<td>{replica.id}</td>" in html
        assert f"<td>{replica.instance_id}</td>" in html


def test_decisions_and_consoles_can_be_read(demo: Bench, spotrelay: Command) -> None:
    """What the control plane decided about this service and no other; what an instance said."""
    lines = spotrelay("logs", "demo", "--json", "--since", "1d")[1].splitlines()
    told = [json.loads(line) for line in lines]
    assert {line["service"] for line in told} == {"demo"}
    assert "launch" in {line["message"] for line in told}
    replica = demo.victim()
    code, out, _ = spotrelay("logs", "demo", str(replica.id))
    assert code == 0
    assert out.strip()
    code, _, err = spotrelay("logs", "demo", "99999")
    assert (code, err) == (2, "spotrelay logs: replica 99999 of demo isn't known: `spotrelay status demo`\n")


SEVENTEEN = 17


@pytest.fixture
def seventeenth(demo: Bench, operator: Operator) -> int:
    """ID of a replica whose instance somebody terminated: 17, or a later one if that was lost before."""
    while max(demo.watch.look().replicas) < SEVENTEEN:
        warned = [r for r in demo.watch.look().ready if r.stays]
        demo.warn_all(warned)
        for replica in warned:
            demo.until_state(replica.id, ReplicaState.DRAINING)
        serving(demo)
    lost = min((r for r in demo.watch.look().ready if r.stays and r.id >= SEVENTEEN), key=lambda r: r.id)
    operator.session.client("ec2").terminate_instances(InstanceIds=[str(lost.instance_id)])
    demo.until_state(lost.id, ReplicaState.TERMINATED)
    serving(demo)
    return lost.id


def test_why_replica_17_was_replaced_and_what_it_cost(
    demo: Bench, operator: Operator, spotrelay: Command, seventeenth: int
) -> None:
    """Two commands' output alone: the history names it and its successor, the explanation why and the USD."""
    _, table, _ = spotrelay("history", "demo")
    (line,) = (words for words in map(str.split, table.splitlines()) if words[1:2] == [str(seventeenth)])
    assert line[4:6] == ["no", "warning"]
    successor = line[6]
    code, out, err = spotrelay("explain", "demo", str(seventeenth))
    assert code == 0, err
    facts = {
        about: words
        for about, gap, words in (one.strip().partition("  ") for one in out.splitlines()[1:])
        if gap
    }
    assert facts["lost"].strip().startswith("a loss without a warning")
    assert facts["replaced by"].strip().startswith(f"replica {successor} in ")
    row = demo.watch.look().replicas[seventeenth]
    assert facts["why it went"].strip() == row.reason
    assert f"it replaces replica {seventeenth} in " in spotrelay("explain", "demo", successor)[1]
    instance_usd = _hand_sum([row], _prices(operator, [row], row.since), row.since)
    hours = (row.since - row.entered[ReplicaState.PROVISIONING]) / HOUR
    usd = float(facts["cost"].split()[0])
    assert usd == pytest.approx(instance_usd + hours * demo.spec.disk_usd_per_hour, abs=0.0001)
    cost = spotrelay.json("explain", "demo", str(seventeenth))["cost"]
    assert cost["spot_usd"] + cost["on_demand_usd"] == pytest.approx(instance_usd, rel=0.01, abs=0.000002)
    assert cost["spot_usd"] + cost["on_demand_usd"] > 0
