"""The end of a stack: in which order it goes, and what it leaves."""

from __future__ import annotations

from lambdas.removal import MARGIN_S
from spotrelay.file.fields.sections import MAX_DRAIN_S
from spotrelay.plane.core.timing import DRAIN_SETTLE_S, REMOVED_AFTER_S
from stacks.removal import SERVICES_GO_FIRST
from tests.template.support import Template, as_list, flat, function, function_id, refers_to

RESOURCE = "Custom::SpotRelayReplicas"

NEEDED_BY_REPLICAS = {
    "AWS::EC2::LaunchTemplate",
    "AWS::EC2::SecurityGroup",
    "AWS::ElasticLoadBalancingV2::Listener",
    "AWS::ElasticLoadBalancingV2::LoadBalancer",
    "AWS::ElasticLoadBalancingV2::TargetGroup",
    "AWS::IAM::InstanceProfile",
}
"""What an instance that drains has, uses or is reached by. The network is another stack, and goes last."""

KEPT = {"AWS::DynamoDB::Table"}
"""By intention, and told in docs/commands.md."""


def test_the_document_goes_first_then_the_replicas_then_the_rest(service_stack: Template) -> None:
    """CloudFormation deletes in the reverse order of what comes after what."""
    (waiting,) = service_stack.all(RESOURCE)
    (document,) = service_stack.all("AWS::SSM::Parameter")
    assert waiting in service_stack.comes_after(document)
    before = service_stack.comes_after(waiting)
    for type_ in NEEDED_BY_REPLICAS:
        found = service_stack.all(type_)
        assert found, type_
        assert found.keys() <= before, type_
    probers = {
        id_
        for id_, f in service_stack.all("AWS::Lambda::Function").items()
        if f["Handler"] == "lambdas.probe.handler"
    }
    assert probers <= before


def test_a_removal_waits_for_the_longest_drain(service_stack: Template) -> None:
    """Until the removal is certain, until all requests have finished, and until a large instance is gone."""
    shuts_down_s = 3 * 60
    needed_s = REMOVED_AFTER_S + MAX_DRAIN_S + DRAIN_SETTLE_S + shuts_down_s + MARGIN_S
    assert function(service_stack, "removal")["Timeout"] >= needed_s


def test_it_can_look_until_the_end_and_do_nothing_else(service_stack: Template, service_name: str) -> None:
    """Its role goes after it, reads its own service's document, and has no right to change anything."""
    waits = function(service_stack, "removal")
    role = refers_to(waits["Role"])
    policies = {id_ for id_, p in service_stack.policies.items() if {"Ref": role} in p["Roles"]}
    assert {role, *policies} <= service_stack.comes_after(function_id(service_stack, "removal"))
    actions = {a for s in service_stack.statements(role) for a in as_list(s["Action"])}
    assert actions == {
        "ec2:DescribeInstances",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "ssm:GetParameters",
    }
    (reads,) = (s for s in service_stack.statements(role) if as_list(s["Action"]) == ["ssm:GetParameters"])
    assert {flat(arn).rpartition(":parameter")[2] for arn in reads["Resource"]} == {
        f"/spotrelay/services/{service_name}",
        "/spotrelay/control-plane",
    }


def test_its_time_fits_into_what_cloudformation_waits(service_stack: Template) -> None:
    """Out of time it still answers before CloudFormation gives it up, with words of its own."""
    resource = service_stack.only(RESOURCE)
    assert function(service_stack, "removal")["Timeout"] < int(resource["ServiceTimeout"]) <= 3600


def test_the_control_plane_goes_last(control_plane: Template, service_stack: Template) -> None:
    """CloudFormation refuses to delete it while a service imports what it exports, whose value is fixed."""
    assert service_stack.only(RESOURCE)["ControlPlane"] == {"Fn::ImportValue": SERVICES_GO_FIRST}
    exports = (o for o in control_plane.body["Outputs"].values() if "Export" in o)
    (export,) = (o for o in exports if o["Export"]["Name"] == SERVICES_GO_FIRST)
    assert isinstance(export["Value"], str)


def test_nothing_is_left_but_the_table(control_plane: Template, service_stack: Template) -> None:
    """Nothing else is retained, and every function has a log group that goes with its stack."""
    for template in (control_plane, service_stack):
        kept = {
            resource["Type"]
            for resource in template.body["Resources"].values()
            if resource.get("DeletionPolicy", "Delete") != "Delete"
        }
        assert kept <= KEPT
        for id_, lambda_ in template.all("AWS::Lambda::Function").items():
            assert refers_to(lambda_["LoggingConfig"]["LogGroup"]) in template.all("AWS::Logs::LogGroup"), id_
