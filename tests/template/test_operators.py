"""The policies for people: one looks, one rehearses, and neither can do anything else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from spotrelay.plane.core.names import INSTANCE_ROLE_PATH, TAG_SERVICE
from tests.template.support import Template, as_list, flat, function, function_id, refers_to

LOOKS = {
    "cloudwatch:DescribeAlarms", "cloudwatch:GetMetricData", "dynamodb:BatchGetItem", "dynamodb:GetItem",
    "dynamodb:Query", "ec2:DescribeSpotPriceHistory", "ec2:GetConsoleOutput",
    "cloudformation:DescribeStacks", "logs:FilterLogEvents", "pricing:GetProducts", "ssm:GetParameters",
    "ssm:GetParametersByPath",
}  # fmt: skip
"""What status, history, explain, cost, prices, scores, logs and request call."""

BOARDS = {
    "cloudwatch:GetDashboard", "cloudwatch:ListDashboards", "cloudwatch:ListMetrics", "lambda:InvokeFunction",
    "logs:GetQueryResults", "logs:StartQuery",
}  # fmt: skip
"""What CloudWatch's console calls besides, in the looker's name, to show the dashboards."""

ALARMS = {
    "aws logs tail": "logs:FilterLogEvents",
    "aws lambda get-account-settings": "lambda:GetAccountSettings",
    "aws lambda list-event-source-mappings": "lambda:ListEventSourceMappings",
    "aws sqs receive-message": "sqs:ReceiveMessage",
}
"""What the alarms tell one to run, and the action that it is."""

READS = {*LOOKS, *BOARDS, *ALARMS.values()}

DRILLS = {"fis:GetExperiment", "fis:StopExperiment", "lambda:InvokeFunction"}

STARTS = {
    "fis:CreateExperimentTemplate", "fis:DeleteExperimentTemplate", "fis:StartExperiment", "fis:TagResource",
    "iam:CreateServiceLinkedRole", "iam:PassRole",
}  # fmt: skip
"""What the function for drills calls, and nobody else."""

WITHOUT_NARROWER_RESOURCE = {
    "cloudwatch:DescribeAlarms", "cloudwatch:GetMetricData", "cloudwatch:ListDashboards",
    "cloudwatch:ListMetrics", "ec2:DescribeSpotPriceHistory", "lambda:GetAccountSettings",
    "lambda:ListEventSourceMappings", "logs:GetQueryResults", "pricing:GetProducts",
}  # fmt: skip
"""Read-only, and AWS knows no resource for them."""

OURS = {"Null": {f"aws:ResourceTag/{TAG_SERVICE}": "false"}}
OUR_INSTANCES = {
    **OURS,
    "StringLike": {"aws:ResourceTag/aws:ec2launchtemplate:id": "lt-*"},
    "ArnLike": {
        "ec2:InstanceProfile": {
            "Fn::Join": [
                "",
                [
                    *("arn:", {"Ref": "AWS::Partition"}, ":iam::", {"Ref": "AWS::AccountId"}),
                    f":instance-profile{INSTANCE_ROLE_PATH}*",
                ],
            ]
        }
    },
}
"""What anybody may set is not enough: see `stacks.permissions.our_instances`."""
TAGGED_AS_OURS = {"Null": {f"aws:RequestTag/{TAG_SERVICE}": "false"}}

MOST_CHARACTERS = 6144
"""Of a managed policy, white space not counted
(https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html)."""


def statements(template: Template, output: str) -> list[dict[str, Any]]:
    """Of the policy that an output names."""
    id_ = refers_to(template.body["Outputs"][output]["Value"])
    found: list[dict[str, Any]] = template.all("AWS::IAM::ManagedPolicy")[id_]["PolicyDocument"]["Statement"]
    return found


def of_action(template: Template, output: str, action: str) -> list[dict[str, Any]]:
    """Those that allow it."""
    return [s for s in statements(template, output) if action in as_list(s["Action"])]


def kind_of(statement: dict[str, Any]) -> str:
    """Of the one resource, what comes before the slash."""
    (resource,) = as_list(statement["Resource"])
    return flat(resource).rpartition(":")[2].partition("/")[0]


@pytest.mark.parametrize(("output", "actions"), [("OperatorPolicy", READS), ("DrillPolicy", READS | DRILLS)])
def test_a_policy_allows_what_its_commands_call_and_no_more(
    control_plane: Template, output: str, actions: set[str]
) -> None:
    """Each action is named, everywhere only what AWS knows no resource for, and it fits into a policy."""
    allowed = statements(control_plane, output)
    assert {action for s in allowed for action in as_list(s["Action"])} == actions
    assert {s["Effect"] for s in allowed} == {"Allow"}
    everywhere = {a for s in allowed if "*" in as_list(s["Resource"]) for a in as_list(s["Action"])}
    assert everywhere == WITHOUT_NARROWER_RESOURCE
    assert len(json.dumps(allowed, separators=(",", ":"))) < MOST_CHARACTERS


def test_who_looks_sees_ours_only(control_plane: Template) -> None:
    """Documents, the control plane's table, its functions' logs, our instances' consoles; and no secret."""
    for output in ("OperatorPolicy", "DrillPolicy"):
        (parameters,) = of_action(control_plane, output, "ssm:GetParameters")
        assert {flat(r).rpartition(":")[2] for r in parameters["Resource"]} == {
            "parameter/spotrelay/services/*", "parameter/spotrelay/control-plane"
        }  # fmt: skip
        (names,) = of_action(control_plane, output, "ssm:GetParametersByPath")
        assert {flat(r).rpartition(":")[2] for r in names["Resource"]} == {
            "parameter/spotrelay/services", "parameter/spotrelay/services/*"
        }  # fmt: skip
    (rows,) = of_action(control_plane, "OperatorPolicy", "dynamodb:Query")
    assert refers_to(rows["Resource"]) in control_plane.all("AWS::DynamoDB::Table")
    (logs,) = of_action(control_plane, "OperatorPolicy", "logs:FilterLogEvents")
    all_groups = control_plane.all("AWS::Logs::LogGroup")
    groups = {id_ for id_ in all_groups if not id_.startswith(("Widget", "Drill"))}
    assert {refers_to(r) for r in logs["Resource"]} == groups
    (queried,) = of_action(control_plane, "OperatorPolicy", "logs:StartQuery")
    assert queried["Resource"] == logs["Resource"]
    (shown,) = of_action(control_plane, "OperatorPolicy", "cloudwatch:GetDashboard")
    assert flat(shown["Resource"]) == (
        "arn:<AWS::Partition>:cloudwatch::<AWS::AccountId>:dashboard/spotrelay-*"
    )
    (drawn,) = of_action(control_plane, "OperatorPolicy", "lambda:InvokeFunction")
    assert refers_to(drawn["Resource"]).startswith("Widget")
    (console,) = of_action(control_plane, "OperatorPolicy", "ec2:GetConsoleOutput")
    assert console["Condition"] == OUR_INSTANCES


def test_who_is_paged_may_run_what_the_alarm_says(control_plane: Template, service_stack: Template) -> None:
    """Each alarm begins with a command, and the policy for looking allows it: there, and on that queue."""
    alarms = [*control_plane.alarms.values(), *service_stack.alarms.values()]
    commands = {flat(alarm["AlarmDescription"]).split("`")[1] for alarm in alarms}
    of_aws = {command for command in commands if not re.match(r"spotrelay (status|scores) ", command)}
    assert {" ".join(command.split()[:3]) for command in of_aws} == set(ALARMS)
    (set_aside,) = of_action(control_plane, "OperatorPolicy", "sqs:ReceiveMessage")
    told = {queue for command in of_aws for queue in re.findall(r"--queue-url <(.*?)>", command)}
    assert {refers_to(set_aside["Resource"])} == told


def test_who_drills_starts_nothing_by_themselves(control_plane: Template) -> None:
    """They have the function do it, and watch and stop what bears our tag."""
    invoked = of_action(control_plane, "DrillPolicy", "lambda:InvokeFunction")
    (of_looking,) = of_action(control_plane, "OperatorPolicy", "lambda:InvokeFunction")
    functions = {refers_to(s["Resource"]) for s in invoked}
    assert functions - {refers_to(of_looking["Resource"])} == {function_id(control_plane, "drill")}
    for name in ("GetExperiment", "StopExperiment"):
        (of_ours,) = of_action(control_plane, "DrillPolicy", f"fis:{name}")
        assert (kind_of(of_ours), of_ours["Condition"]) == ("experiment", OURS)


def of_function(template: Template, action: str) -> list[dict[str, Any]]:
    """The statements that allow it to the function for drills."""
    role = refers_to(function(template, "drill")["Role"])
    return [s for s in template.statements(role) if action in as_list(s["Action"])]


def test_a_drill_touches_nothing_without_our_tag(control_plane: Template) -> None:
    """Experiments have our tag and the one action; only those with our tag can be started and ended."""
    role = refers_to(function(control_plane, "drill")["Role"])
    allowed = {a for s in control_plane.statements(role) for a in as_list(s["Action"])}
    assert {a for a in allowed if not a.startswith("logs:")} == STARTS
    action, made = of_function(control_plane, "fis:CreateExperimentTemplate")
    assert flat(action["Resource"]).endswith(":action/aws:ec2:send-spot-instance-interruptions")
    assert (kind_of(made), made["Condition"]) == ("experiment-template", TAGGED_AS_OURS)
    tagged = of_function(control_plane, "fis:TagResource")
    assert {kind_of(s) for s in tagged} == {"experiment-template", "experiment"}
    assert [s["Condition"] for s in tagged] == [TAGGED_AS_OURS] * 2
    (deleted,) = of_function(control_plane, "fis:DeleteExperimentTemplate")
    assert (kind_of(deleted), deleted["Condition"]) == ("experiment-template", OURS)
    starts = of_function(control_plane, "fis:StartExperiment")
    assert {kind_of(s): s["Condition"] for s in starts} == {
        "experiment-template": OURS, "experiment": TAGGED_AS_OURS
    }  # fmt: skip


def test_a_drill_lends_one_role_that_interrupts_ours(control_plane: Template) -> None:
    """To FIS alone, which may assume it for this account; it interrupts instances with our tag, no more."""
    (lent,) = of_function(control_plane, "iam:PassRole")
    assert lent["Condition"] == {"StringEquals": {"iam:PassedToService": "fis.amazonaws.com"}}
    role = refers_to(lent["Resource"])
    assert refers_to(control_plane.body["Outputs"]["DrillRole"]["Value"]) == role
    (given,) = function(control_plane, "drill")["Environment"]["Variables"].values()
    assert refers_to(given) == role
    (trust,) = control_plane.all("AWS::IAM::Role")[role]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "fis.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    sees, may = control_plane.statements(role)
    assert (as_list(sees["Action"]), sees["Resource"]) == (["ec2:DescribeInstances"], "*")
    assert as_list(may["Action"]) == ["ec2:SendSpotInstanceInterruptions"]
    assert flat(may["Resource"]) == "arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:instance/*"
    assert may["Condition"] == OUR_INSTANCES
