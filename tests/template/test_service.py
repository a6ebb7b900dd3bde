"""A service's stack: what the load balancer, the instances and the controller are told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spotrelay.file.service import Service, load
from spotrelay.file.values.limits import MAX_PROBE_TIMEOUT_S
from spotrelay.plane.aws.clients import PROBING
from spotrelay.plane.core.names import (
    IMAGE_RESOURCE,
    MAX_NAME,
    METRICS_DIMENSION,
    METRICS_NAMESPACE,
    TAG_SERVICE,
    VERSION_RESOURCE,
    image_parameter,
    prober_function,
    target_group_name,
)
from spotrelay.plane.core.spec import ServiceSpec
from stacks.dashboard import BLOCKED_TITLE
from tests.template.conftest import SERVICE_FILES
from tests.template.support import (
    Template,
    alarms_of,
    as_list,
    document_text,
    exported,
    flat,
    function,
    function_id,
    metrics_of,
    refers_to,
)

WARNING_S = 120


@pytest.fixture
def service(service_name: str) -> Service:
    """The service file."""
    return load(SERVICE_FILES[service_name])


@pytest.fixture
def launch(service_stack: Template) -> dict[str, Any]:
    """What the launch template says of an instance."""
    data: dict[str, Any] = service_stack.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
    return data


def test_draining_ends_before_the_instance_does(service_stack: Template, service: Service) -> None:
    """The load balancer cuts no request before the longest way out does; a warning leaves `drain_seconds`."""
    delay = int(_attributes(service_stack)["deregistration_delay.timeout_seconds"])
    assert delay == max(service.longest_drain_s, WARNING_S)
    assert service.drain_s < WARNING_S


def test_health_is_checked_where_the_service_answers(service_stack: Template, service: Service) -> None:
    """The load balancer asks the service's own path at each target's own port, and over HTTP."""
    group = service_stack.only("AWS::ElasticLoadBalancingV2::TargetGroup")
    assert (group["Protocol"], group["TargetType"]) == ("HTTP", "instance")
    assert group.get("HealthCheckPort", "traffic-port") == "traffic-port"
    assert group["HealthCheckPath"] == service.health_check_path
    assert group["HealthCheckTimeoutSeconds"] < group["HealthCheckIntervalSeconds"]


def test_silence_ends_when_the_service_says(service_stack: Template, service: Service) -> None:
    """The load balancer gives up on a request after the service file's idle time-out."""
    balancer = service_stack.only("AWS::ElasticLoadBalancingV2::LoadBalancer")
    wanted = {"Key": "idle_timeout.timeout_seconds", "Value": str(service.idle_timeout_s)}
    assert wanted in balancer["LoadBalancerAttributes"]


def test_the_target_group_carries_the_tag_that_permissions_ask_for(
    service_stack: Template, service_name: str
) -> None:
    """Target group and launch template have the tag without which the functions may not touch them."""
    tag = {"Key": TAG_SERVICE, "Value": service_name}
    assert tag in service_stack.only("AWS::ElasticLoadBalancingV2::TargetGroup")["Tags"]
    specifications = service_stack.only("AWS::EC2::LaunchTemplate")["TagSpecifications"]
    assert {"ResourceType": "launch-template", "Tags": [tag]} in specifications


def test_a_target_group_is_never_replaced(service_stack: Template, service: Service) -> None:
    """It has a fixed name, so CloudFormation refuses whatever would put an empty one in its place."""
    assert service_stack.only("AWS::ElasticLoadBalancingV2::TargetGroup")["Name"] == f"relay-{service.name}"


def test_target_groups_have_names_that_elb_takes() -> None:
    """The longest name that a service may have makes one of at most 32 characters."""
    assert len(target_group_name("x" * MAX_NAME)) <= 32


def test_another_port_changes_nothing_but_what_is_launched(service_stack: Template, service: Service) -> None:
    """The launch template and the document alone have it; the target group keeps the one it was made with.

    Its property is a parameter, of which CloudFormation keeps the value of the last deployment.
    """
    resources = service_stack.body["Resources"]
    with_port = {r["Type"] for r in resources.values() if str(service.port) in str(r)}
    assert with_port == {"AWS::EC2::LaunchTemplate", "AWS::SSM::Parameter"}
    group = service_stack.only("AWS::ElasticLoadBalancingV2::TargetGroup")
    parameter = service_stack.body["Parameters"][refers_to(group["Port"])]
    assert (parameter["Type"], parameter["Default"]) == ("Number", service.port)


def test_answers_that_a_drain_would_cut_are_heard_of(service_stack: Template, service: Service) -> None:
    """The slowest answers are held against the drain time, and the control plane's topic hears of it."""
    alarm = alarms_of(service_stack, service.name)["SlowAnswers"]
    (balancer,) = service_stack.all("AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert alarm["Namespace"] == "AWS/ApplicationELB"
    dimension = {"Name": "LoadBalancer", "Value": {"Fn::GetAtt": [balancer, "LoadBalancerFullName"]}}
    assert alarm["Dimensions"] == [dimension]
    assert (alarm["ExtendedStatistic"], alarm["Threshold"]) == ("p99", service.drain_s)
    assert alarm["ComparisonOperator"] == "GreaterThanThreshold"
    assert alarm["Period"] * alarm["EvaluationPeriods"] == 15 * 60
    assert alarm["TreatMissingData"] == "notBreaching"
    assert "headers" in alarm["AlarmDescription"]


def test_a_services_alarm_reaches_the_control_planes_topic(
    service_stack: Template, control_plane: Template
) -> None:
    """The ARN that a service's stack forms is that of the control plane's topic, in each of its alarms."""
    name = control_plane.only("AWS::SNS::Topic")["TopicName"]
    arn = f"arn:<AWS::Partition>:sns:<AWS::Region>:<AWS::AccountId>:{name}"
    told = [a["AlarmActions"] + a["OKActions"] for a in service_stack.alarms.values() if "AlarmActions" in a]
    assert told
    for actions in told:
        assert [flat(a) for a in actions] == [arn, arn]


def test_a_services_alarms_name_it(service_stack: Template, service: Service) -> None:
    """Whoever is woken reads first which service it is about, and those of ours count that one alone."""
    for alarm in alarms_of(service_stack, service.name).values():
        assert f". {service.name}: " in alarm["AlarmDescription"]
        assert f" {service.name}`" in alarm["AlarmDescription"]
        for metric in metrics_of(alarm):
            if metric["Namespace"] == METRICS_NAMESPACE:
                assert {"Name": METRICS_DIMENSION, "Value": service.name} in metric["Dimensions"]


def test_alarms_on_launches_say_where_ec2s_words_are(service_stack: Template, service: Service) -> None:
    """An alarm's text is written at synth: it leads to the words and the remedy of what happened."""
    for alarm in ("CannotLaunch", "NotWhole"):
        assert BLOCKED_TITLE in alarms_of(service_stack, service.name)[alarm]["AlarmDescription"]


def test_a_launch_template_alone_makes_no_instance_ours(launch: dict[str, Any]) -> None:
    """The tag on an instance says that the controller launched it; the template doesn't write it.

    Nor any other: a key that the fleet's request has, too, may be refused.
    """
    assert {s["ResourceType"] for s in launch["TagSpecifications"]} == {"volume"}


def test_instance_metadata_needs_a_token(launch: dict[str, Any]) -> None:
    """Only IMDSv2 is answered, not into containers: a tricked server can't read the role's credentials."""
    assert launch["MetadataOptions"]["HttpTokens"] == "required"
    assert launch["MetadataOptions"]["HttpPutResponseHopLimit"] == 1


def test_disks_are_encrypted_and_go_with_the_instance(launch: dict[str, Any], service: Service) -> None:
    """The volume is as the service file asks, encrypted, and isn't left behind to be paid for."""
    (mapping,) = launch["BlockDeviceMappings"]
    volume = mapping["Ebs"]
    assert volume["Encrypted"]
    assert volume["DeleteOnTermination"]
    assert (volume["VolumeType"], volume["VolumeSize"]) == ("gp3", service.disk.size_gib)
    assert (volume["Iops"], volume["Throughput"]) == (service.disk.iops, service.disk.throughput_mibps)
    assert mapping["DeviceName"] == "/dev/sda1", "the default image's root"
    assert not {"KmsKeyId", "VolumeInitializationRate"} & set(volume), "neither was asked for"


def test_the_controller_chooses_type_and_subnet(launch: dict[str, Any]) -> None:
    """Nothing in the template ties a launch to one pool."""
    assert not {"InstanceType", "InstanceMarketOptions", "Placement", "NetworkInterfaces"} & set(launch)


def test_only_load_balancer_and_prober_reach_the_instances(
    service_stack: Template, launch: dict[str, Any]
) -> None:
    """Nobody else at any port, so that two versions may listen on two; and there is no SSH."""
    groups = service_stack.all("AWS::EC2::SecurityGroup")
    (group,) = launch["SecurityGroupIds"]
    rules = groups[refers_to(group)]["SecurityGroupIngress"]
    balancer = service_stack.only("AWS::ElasticLoadBalancingV2::LoadBalancer")
    prober = function(service_stack, "probe")
    assert [refers_to(rule["SourceSecurityGroupId"]) for rule in rules] == [
        refers_to(balancer["SecurityGroups"][0]),
        refers_to(prober["VpcConfig"]["SecurityGroupIds"][0]),
    ]
    assert {(rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) for rule in rules} == {("tcp", 0, 65_535)}
    assert "KeyName" not in launch


def test_the_prober_is_where_the_replicas_are(service_stack: Template, service_name: str) -> None:
    """It bears the name that the control plane may call, and is in the instances' subnets for good."""
    prober = function(service_stack, "probe")
    assert prober["FunctionName"] == prober_function(service_name)
    assert {flat(s) for s in prober["VpcConfig"]["SubnetIds"]} == set(_document(service_stack)["subnets"])


def test_the_prober_reaches_the_replicas_and_nothing_else(
    service_stack: Template, launch: dict[str, Any]
) -> None:
    """Its code parses what replicas send: whoever takes it over gets no further into the network."""
    (own,) = function(service_stack, "probe")["VpcConfig"]["SecurityGroupIds"]
    group = service_stack.all("AWS::EC2::SecurityGroup")[refers_to(own)]
    assert [rule["Description"] for rule in group["SecurityGroupEgress"]] == ["Disallow all traffic"]
    rules = [
        rule
        for rule in service_stack.all("AWS::EC2::SecurityGroupEgress").values()
        if refers_to(rule["GroupId"]) == refers_to(own)
    ]
    (replicas,) = launch["SecurityGroupIds"]
    assert [refers_to(rule["DestinationSecurityGroupId"]) for rule in rules] == [refers_to(replicas)]
    assert [(r["IpProtocol"], r["FromPort"], r["ToPort"]) for r in rules] == [("tcp", 0, 65_535)]


def test_the_probers_own_code_may_do_nothing_to_networks(service_stack: Template, service_name: str) -> None:
    """Lambda manages its interfaces with the role; what the role grants for that is denied to the code."""
    role = refers_to(function(service_stack, "probe")["Role"])
    found = [s for s in service_stack.statements(role) if "ec2:" in str(s["Action"])]
    allowed = next(s for s in found if s["Effect"] == "Allow")
    denied = next(s for s in found if s["Effect"] == "Deny")
    assert (denied["Action"], denied["Resource"]) == (allowed["Action"], "*")
    arn = denied["Condition"]["ArnEquals"]["lambda:SourceFunctionArn"]
    assert flat(arn).endswith(f":function:{prober_function(service_name)}")
    assert "*" not in flat(arn)


def test_the_prober_answers_before_nobody_waits_for_it(service_stack: Template) -> None:
    """The longest probe of a service file, then its function's time-out, then the controller's patience."""
    patience: int = vars(PROBING)["read_timeout"]  # botocore's types don't know it
    longest = MAX_PROBE_TIMEOUT_S
    assert longest < function(service_stack, "probe")["Timeout"] < patience


def test_malformed_headers_stop_at_the_load_balancer(service_stack: Template) -> None:
    """A header that could be read in two ways isn't passed on."""
    balancer = service_stack.only("AWS::ElasticLoadBalancingV2::LoadBalancer")
    wanted = {"Key": "routing.http.drop_invalid_header_fields.enabled", "Value": "true"}
    assert wanted in balancer["LoadBalancerAttributes"]


def test_the_image_is_looked_up_at_the_first_deployment(
    service_stack: Template, service: Service, launch: dict[str, Any]
) -> None:
    """CloudFormation reads its public parameter, and what is kept decides; synth asks nobody."""
    (kept,) = service_stack.all(IMAGE_RESOURCE)
    assert flat(launch["ImageId"]) == f"<{kept}.ImageId>"
    parameters, asked = service_stack.body["Parameters"], service_stack.only(IMAGE_RESOURCE)
    newest = parameters[refers_to(asked["Newest"])]
    assert newest["Type"] == "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
    assert newest["Default"] == service.image.reference
    name = image_parameter(service.image.reference)
    assert (refers_to(asked["Asked"]), parameters[name]["Default"]) == (name, "")
    assert name in kept, "another parameter is another resource, which finds its own image"


def test_the_version_is_what_is_kept(service_stack: Template) -> None:
    """Of the launch template's latest version and the deployed one, a function may look at both."""
    (launch_template,) = service_stack.all("AWS::EC2::LaunchTemplate")
    asked = service_stack.only(VERSION_RESOURCE)
    assert flat(asked["LaunchTemplateId"]) == f"<{launch_template}>"
    assert flat(asked["Latest"]) == f"<{launch_template}.LatestVersionNumber>"
    role = refers_to(function(service_stack, "kept")["Role"])
    actions = {a for s in service_stack.statements(role) for a in as_list(s["Action"])}
    assert actions == {
        "ec2:DescribeLaunchTemplateVersions",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "ssm:GetParameters",
    }
    policies = {id_ for id_, p in service_stack.policies.items() if {"Ref": role} in p["Roles"]}
    assert {role, *policies} <= service_stack.comes_after(function_id(service_stack, "kept"))


def test_an_instance_may_read_its_own_secrets_only(service_stack: Template, service: Service) -> None:
    """Beyond a Session Manager shell, the role reads the parameters that the file names, in any version."""
    role = service_stack.id_with("AWS::IAM::Role", "InstancesRole")
    readable = [
        flat(resource).partition(":parameter")[2]
        for s in service_stack.statements(role)
        if "ssm:GetParameter" in as_list(s["Action"])
        for resource in as_list(s["Resource"])
    ]
    assert readable == [name for one in sorted(set(service.secrets.values())) for name in (one, f"{one}:*")]
    assert "ManagedPolicyArns" not in service_stack.all("AWS::IAM::Role")[role]


def test_user_data_fits(launch: dict[str, Any]) -> None:
    """EC2 takes 16 KiB; the scripts of the repository's services leave room."""
    text = flat(launch["UserData"])
    assert text.startswith("#cloud-config\n")
    assert len(text.encode()) < 16_384


def test_secrets_are_named_and_not_written(launch: dict[str, Any], service: Service) -> None:
    """User data says from which parameter a secret comes, in the stack's own region."""
    text = flat(launch["UserData"])
    for parameter in service.secrets.values():
        assert parameter in text
        assert "--region '<AWS::Region>'" in text or "--region <AWS::Region>" in text


def test_the_controller_can_read_the_document(service_stack: Template, service: Service) -> None:
    """The parameter's text is a runtime document, once CloudFormation has filled in what only it knows."""
    parameter = service_stack.only("AWS::SSM::Parameter")
    assert parameter["Name"] == f"/spotrelay/services/{service.name}"
    (template,) = service_stack.all("AWS::EC2::LaunchTemplate")
    text = json.dumps(_document(service_stack))
    spec = ServiceSpec.from_json(text)
    (group,) = service_stack.all("AWS::ElasticLoadBalancingV2::TargetGroup")
    assert (spec.version, spec.replicas, spec.port) == (7, service.replicas, service.port)
    assert spec.launch_template_id == f"<{template}>"
    assert spec.target_group_arn == f"<{group}>"
    assert spec.instance_types == service.instance_type_names
    assert spec.readiness_probe == service.readiness_probe
    assert (spec.use_spot, spec.ordered) == (service.use_spot, service.ordered)
    assert (spec.drain_s, spec.initial_delay_s) == (service.drain_s, service.initial_delay_s)
    assert len(text) < 4096, "a standard parameter takes 4 KB"


def test_every_zone_has_one_subnet(service_stack: Template, network: Template) -> None:
    """Three zones are three sets of pools; EC2 Fleet takes one subnet of each, in the zone that EC2 says."""
    subnets = {
        exported(network, id_).strip("<>"): exported(network, zone)
        for id_, zone in _document(service_stack)["subnets"].items()
    }
    made = network.all("AWS::EC2::Subnet")
    assert [flat(made[id_]["AvailabilityZone"]) for id_ in subnets] == ["<zone 0>", "<zone 1>", "<zone 2>"]
    assert all(zone == f"<{id_}.AvailabilityZone>" for id_, zone in subnets.items())


def test_outputs_tell_where_to_go(service_stack: Template, service_name: str) -> None:
    """After a deployment the user knows the address to point clients at."""
    (balancer,) = service_stack.all("AWS::ElasticLoadBalancingV2::LoadBalancer")
    outputs = service_stack.body["Outputs"]
    assert flat(outputs["Endpoint"]["Value"]) == f"<{balancer}.DNSName>"
    assert outputs["ParameterName"]["Value"] == f"/spotrelay/services/{service_name}"


def _attributes(template: Template) -> dict[str, str]:
    group = template.only("AWS::ElasticLoadBalancingV2::TargetGroup")
    return {a["Key"]: a["Value"] for a in group["TargetGroupAttributes"]}


def _document(template: Template) -> dict[str, Any]:
    """The runtime document, as of the launch template's version 7."""
    document: dict[str, Any] = json.loads(document_text(template))
    return document
