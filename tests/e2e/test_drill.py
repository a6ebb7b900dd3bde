"""`spotrelay drill`, as an operator runs it against a deployment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from lab.local.environment import REGION
from spotrelay.core.names import CONTROL_PLANE_PARAMETER
from spotrelay.operate.losses import losses
from tests.e2e.stand import WITHIN_S, Stand

ROLE = "drill-of-the-test"


@pytest.fixture
def rehearsing(stand: Stand) -> Iterator[Stand]:
    """The deployment with a role for drills, of its own or of the test's."""
    ssm, iam = (stand.operator.session.client(service) for service in ("ssm", "iam"))
    value = ssm.get_parameter(Name=CONTROL_PLANE_PARAMETER)["Parameter"]["Value"]
    claim = json.loads(value)
    if "drill_role" in claim:
        yield stand
        return
    trust = {"Effect": "Allow", "Principal": {"Service": "fis.amazonaws.com"}, "Action": "sts:AssumeRole"}
    may = ["ec2:DescribeInstances", "ec2:SendSpotInstanceInterruptions"]
    grant = {"Effect": "Allow", "Action": may, "Resource": "*"}
    role = iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))
    iam.put_role_policy(RoleName=ROLE, PolicyName="p", PolicyDocument=json.dumps({"Statement": [grant]}))
    claim["drill_role"] = role["Role"]["Arn"]
    ssm.put_parameter(Name=CONTROL_PLANE_PARAMETER, Value=json.dumps(claim), Overwrite=True)
    yield stand
    ssm.put_parameter(Name=CONTROL_PLANE_PARAMETER, Value=value, Overwrite=True)
    iam.delete_role_policy(RoleName=ROLE, PolicyName="p")
    iam.delete_role(RoleName=ROLE)


def started(stand: Stand, *options: str, by: boto3.Session | None = None) -> subprocess.Popen[str]:
    """The command, with all rights or with those of `by`."""
    command = [sys.executable, "-m", "spotrelay", "drill", stand.service, "--region", REGION, *options]
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    given = by.get_credentials() if by else None
    if given and given.token:
        keys = {
            "AWS_ACCESS_KEY_ID": given.access_key,
            "AWS_SECRET_ACCESS_KEY": given.secret_key,
            "AWS_SESSION_TOKEN": given.token,
        }
    return subprocess.Popen(
        [*command, "--endpoint-url", stand.operator.deployment.endpoint],
        env={**os.environ, **keys},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def calls(stand: Stand, since: int) -> list[str]:
    """What FIS was asked since a call number, in order."""
    return [call["action"] for call in stand.cloud.calls(since) if call["service"] == "fis"]


def test_a_drill_passes_and_says_what_the_rows_say(rehearsing: Stand) -> None:
    """It interrupts one replica, ends with PASS once the fleet is whole, and its times are the losses'.

    Whoever runs it has the policy for that, and nothing else.
    """
    stand, before = rehearsing, rehearsing.last_call()
    rehearses = stand.assume("rehearses")
    stand.operator.session.client("iam").attach_role_policy(
        RoleName="rehearses", PolicyArn=stand.outputs["DrillPolicy"]
    )
    process = started(stand, "--yes", "--json", by=rehearses)
    output, errors = process.communicate(timeout=3 * WITHIN_S)
    assert process.returncode == 0, errors + output
    told: dict[str, Any] = json.loads(output)
    assert (told["verdict"], told["problems"], told["gap_s"]) == ("PASS", [], 0)
    (loss,) = told["losses"]
    rows = stand.whole(stand.spec.replicas).replicas
    (known,) = (one for one in losses(rows.values()) if one.replica == loss["replica"])
    for name in ("out_s", "launched_s", "ready_s", "whole_s"):
        assert loss[name] == told[name] == pytest.approx(getattr(known, name), abs=0.1), name
    assert (loss["is_warned"], loss["replaced_by"]) == (True, known.replaced_by)
    assert told["requests"]["failed"] == 0
    asked = calls(stand, before)
    assert (asked[0], asked[-1]) == ("CreateExperimentTemplate", "DeleteExperimentTemplate")
    assert asked.count("StartExperiment") == 1


def test_it_asks_first_and_refuses_what_is_not_whole(rehearsing: Stand) -> None:
    """Without a yes nothing is interrupted; during a loss it ends with 1, and names what is missing."""
    stand = rehearsing
    process = started(stand, "--replicas", "2")
    output, _ = process.communicate("n\n", timeout=WITHIN_S)
    assert process.returncode == 1
    assert "EC2 will take 2 of 3 replicas back" in output
    before = stand.last_call()
    victim = stand.watch.look().ready[0]
    stand.cloud.warn(victim.instance_id or "")
    stand.watch.until(lambda seen: seen.replicas[victim.id].is_warned, "the warning is known", WITHIN_S)
    process = started(stand, "--yes")
    _, errors = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 1
    assert "the fleet isn't whole" in errors
    assert not calls(stand, before)


def test_control_c_leaves_nothing_behind(rehearsing: Stand) -> None:
    """The experiment is stopped and its template deleted; the line says that EC2 goes on."""
    stand, before = rehearsing, rehearsing.last_call()
    process = started(stand, "--yes")
    stand.eventually(lambda: "GetExperiment" in calls(stand, before), "the drill has begun")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 1
    assert "stopped; EC2 takes what it has warned all the same" in errors
    assert calls(stand, before)[-2:] == ["StopExperiment", "DeleteExperimentTemplate"]
