"""`spotrelay drill`, as an operator runs it against a deployment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import boto3
import pytest

from lab.local.environment import REGION
from spotrelay.operator.cli.drill import RECENT_S
from stacks import drills, permissions
from tests.e2e.clients import Clients
from tests.e2e.stand import WITHIN_S, Stand


def started(stand: Stand, name: str, *options: str, by: boto3.Session | None = None) -> subprocess.Popen[str]:
    """A command of ours, with all rights or with those of `by`."""
    command = [sys.executable, "-m", "spotrelay", name, stand.service, "--region", REGION, *options]
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


def answer_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What it prints as JSON, once it has ended well."""
    output, errors = process.communicate(timeout=3 * WITHIN_S)
    assert process.returncode == 0, errors + output
    answer: dict[str, Any] = json.loads(output)
    return answer


def calls(stand: Stand, since: int) -> list[str]:
    """What FIS was asked since a call number, in order."""
    return [call["action"] for call in stand.cloud.calls(since) if call["service"] == "fis"]


def test_a_drill_under_load_passes_and_says_what_the_history_says(stand: Stand) -> None:
    """Clients stream meanwhile: PASS, none of their N requests failed, and its times are the history's.

    Whoever runs it has the policy for that, and nothing else.
    """
    # What clients felt in earlier tests would be a reason to refuse.
    stand.cloud.age_metrics(2 * RECENT_S)
    before = stand.last_call()
    rehearses = stand.assume("rehearses")
    stand.operator.session.client("iam").attach_role_policy(
        RoleName="rehearses", PolicyArn=stand.outputs["DrillPolicy"]
    )
    with Clients(stand) as clients:
        told = answer_of(started(stand, "drill", "--yes", "--json", by=rehearses))
        clients.were_served()
    assert (told["verdict"], told["problems"], told["outage_s"]) == ("PASS", [], 0)
    assert told["requests"]["failed"] == 0
    assert 0 < told["requests"]["total"] <= clients.stop().sent
    (loss,) = told["losses"]
    listed = answer_of(started(stand, "history", "--json"))["losses"]
    (known,) = (one for one in listed if one["replica"] == loss["replica"])
    for name in ("out_s", "launched_s", "ready_s", "whole_s"):
        assert loss[name] == told[name] == pytest.approx(known[name], abs=0.1), name
    assert (known["is_warned"], known["errors"]) == (True, 0)
    assert known["replaced_by"] == loss["replaced_by"] > loss["replica"]
    asked = calls(stand, before)
    assert asked[:3] == ["CreateExperimentTemplate", "StartExperiment", "DeleteExperimentTemplate"]
    assert set(asked[3:]) == {"GetExperiment"}


def test_the_function_uses_each_of_its_rights(stand: Stand) -> None:
    """All but one: an account's first experiment makes a role of FIS's, and the local cloud has none."""
    decisions = stand.cloud.decisions()
    starts = "fis:StartExperiment"
    (role,) = {d["role"] for d in decisions if d["action"] == starts and d["allowed"]}
    asked = {d["action"]: d for d in decisions if d["role"] == role}
    granted = permissions.actions(drills.starting(permissions.AS_CDK_NAG_WRITES, ""))
    assert asked.keys() == granted - {"iam:CreateServiceLinkedRole"}
    assert not any(d["refused"] for d in asked.values())


def test_it_asks_first_and_refuses_what_is_not_whole(stand: Stand) -> None:
    """Without a yes nothing is interrupted; during a loss it ends with 1, and names what is missing."""
    process = started(stand, "drill", "--replicas", "2")
    output, _ = process.communicate("n\n", timeout=WITHIN_S)
    assert process.returncode == 1
    assert "EC2 will take 2 of 3 replicas back" in output
    before = stand.last_call()
    victim = stand.watch.look().ready[0]
    stand.cloud.warn(victim.instance_id or "")
    stand.watch.until(lambda seen: seen.replicas[victim.id].is_warned, "the warning is known", WITHIN_S)
    process = started(stand, "drill", "--yes")
    _, errors = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 1
    assert "the fleet isn't whole" in errors
    assert not calls(stand, before)


def test_control_c_leaves_nothing_behind(stand: Stand) -> None:
    """The experiment is stopped, and its template gone; the line says that EC2 goes on."""
    before = stand.last_call()
    process = started(stand, "drill", "--yes")
    stand.eventually(lambda: "GetExperiment" in calls(stand, before), "the drill has begun")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 1
    assert "stopped; EC2 takes what it has warned all the same" in errors
    asked = calls(stand, before)
    assert asked[-1] == "StopExperiment"
    assert asked.count("CreateExperimentTemplate") == asked.count("DeleteExperimentTemplate") == 1
