"""What the stacks need of CloudFormation and IAM, and MiniStack lacks."""

from __future__ import annotations

import http.client
import json
import uuid
from collections.abc import Callable
from ssl import SSLCertVerificationError
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from lab.local.cloudformation import CONSTRAINED_ZONE
from spotrelay.operator.deploy.stack_remedies import remedy
from spotrelay.operator.deploy.stacks import Stacks
from spotrelay.plane.aws.clients import Clients
from tests.certificates import SelfSigned
from tests.local.conftest import Aws, Ground, eventually

pytestmark = pytest.mark.xdist_group("local")

Resources = dict[str, dict[str, Any]]


class Stack:
    """A CloudFormation stack."""

    def __init__(self, aws: Aws) -> None:
        self.name = f"stack-{uuid.uuid4().hex[:8]}"
        self._cloudformation = aws.client("cloudformation")

    def create(self, resources: Resources) -> str:
        """Create it; the status that it ends in."""
        return self._deploy(self._cloudformation.create_stack, resources)

    def update(self, resources: Resources) -> str:
        """Update it; the status that it ends in."""
        return self._deploy(self._cloudformation.update_stack, resources)

    def remove(self) -> None:
        """Delete it with all that it made."""
        arn = self._cloudformation.describe_stacks(StackName=self.name)["Stacks"][0]["StackId"]
        self._cloudformation.delete_stack(StackName=self.name)

        def is_gone() -> bool:
            stack = self._cloudformation.describe_stacks(StackName=arn)["Stacks"][0]
            return bool(stack["StackStatus"] == "DELETE_COMPLETE")

        eventually(is_gone, "the stack is gone")

    def physical_id(self, name: str) -> str:
        """The physical ID of a resource."""
        found = self._cloudformation.describe_stack_resource(StackName=self.name, LogicalResourceId=name)
        return str(found["StackResourceDetail"]["PhysicalResourceId"])

    def reason(self) -> str:
        """Why the latest resource failed."""
        events = self._cloudformation.describe_stack_events(StackName=self.name)["StackEvents"]
        return str(next(e["ResourceStatusReason"] for e in events if e["ResourceStatus"].endswith("_FAILED")))

    def _deploy(self, action: Callable[..., object], resources: Resources) -> str:
        action(
            StackName=self.name,
            TemplateBody=json.dumps({"Resources": resources}),
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )

        def status() -> str:
            stacks = self._cloudformation.describe_stacks(StackName=self.name)["Stacks"]
            return str(stacks[0]["StackStatus"])

        eventually(lambda: not status().endswith("_IN_PROGRESS"), "the stack is at rest")
        return status()


def parameter(name: str, **more: Any) -> dict[str, Any]:
    """A parameter as a resource."""
    return {
        "Type": "AWS::SSM::Parameter",
        "Properties": {"Name": name, "Value": "ours", "Type": "String"},
        **more,
    }


def target_group(ground: Ground, **more: Any) -> dict[str, Any]:
    """A target group as a resource."""
    properties = {"Port": 8081, "Protocol": "HTTP", "VpcId": ground.vpc, "TargetType": "instance", **more}
    return {"Type": "AWS::ElasticLoadBalancingV2::TargetGroup", "Properties": properties}


def target_groups(ground: Ground) -> set[str]:
    """The ARNs of all target groups."""
    return {g["TargetGroupArn"] for g in ground.aws.elb.describe_target_groups()["TargetGroups"]}


def test_who_deploys_finds_a_quick_stack_done(aws: Aws) -> None:
    """An answer waits for a stack that takes a second: the CDK looks at once, and then every five seconds."""
    cloudformation, name = aws.client("cloudformation"), f"stack-{uuid.uuid4().hex[:8]}"
    wait = {"Handle": {"Ref": "Handle"}, "Timeout": "1"}
    resources = {
        "Handle": {"Type": "AWS::CloudFormation::WaitConditionHandle"},
        "Wait": {"Type": "AWS::CloudFormation::WaitCondition", "Properties": wait},
    }
    cloudformation.create_stack(StackName=name, TemplateBody=json.dumps({"Resources": resources}))
    (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"


def test_security_group_rules_are_resources(ground: Ground) -> None:
    """A rule between two groups, a resource of its own in the CDK, is in its group and goes with it."""
    rule = {
        "GroupId": {"Ref": "Inner"}, "SourceSecurityGroupId": {"Ref": "Outer"},
        "IpProtocol": "tcp", "FromPort": 8081, "ToPort": 8081,
    }  # fmt: skip
    group = {"GroupDescription": "test", "VpcId": ground.vpc}
    resources: Resources = {
        "Outer": {"Type": "AWS::EC2::SecurityGroup", "Properties": group},
        "Inner": {"Type": "AWS::EC2::SecurityGroup", "Properties": group},
        "Rule": {"Type": "AWS::EC2::SecurityGroupIngress", "Properties": rule},
    }
    stack = Stack(ground.aws)

    def ports() -> list[int]:
        group_ids = [stack.physical_id("Inner")]
        (found,) = ground.aws.ec2.describe_security_groups(GroupIds=group_ids)["SecurityGroups"]
        return [permission["FromPort"] for permission in found["IpPermissions"]]

    assert stack.create(resources) == "CREATE_COMPLETE"
    assert ports() == [8081]
    del resources["Rule"]
    assert stack.update(resources) == "UPDATE_COMPLETE"
    assert ports() == []


def test_a_stack_does_not_take_over_a_parameter(ground: Ground) -> None:
    """One that exists already fails its creator, whose other resources go, and it keeps its value."""
    ssm, name = ground.aws.client("ssm"), f"/{uuid.uuid4().hex[:8]}"
    ssm.put_parameter(Name=name, Value="theirs", Type="String")
    first: Resources = {"Before": parameter(f"{name}-before")}
    both = {**first, "Taken": parameter(name, DependsOn="Before")}
    stack = Stack(ground.aws)
    assert stack.create(both) == "ROLLBACK_COMPLETE"
    assert "AlreadyExists" in stack.reason()
    assert ssm.get_parameters(Names=[name, f"{name}-before"])["InvalidParameters"] == [f"{name}-before"]
    another = Stack(ground.aws)
    assert another.create(first) == "CREATE_COMPLETE"
    assert another.update(both) == "UPDATE_ROLLBACK_COMPLETE"
    assert ssm.get_parameter(Name=name)["Parameter"]["Value"] == "theirs"
    assert ssm.get_parameter(Name=f"{name}-before")["Parameter"]["Value"] == "ours"


def test_a_target_group_with_another_port_is_another_target_group(ground: Ground) -> None:
    """A new port replaces the group: a new ARN, without targets, and then the old one is deleted.

    A stack that fails after the replacement has its old group again, targets and all.
    """
    elb, stack = ground.aws.elb, Stack(ground.aws)
    assert stack.create({"Group": target_group(ground)}) == "CREATE_COMPLETE"
    old, ids = stack.physical_id("Group"), ground.running(1)
    elb.register_targets(TargetGroupArn=old, Targets=[{"Id": ids[0]}])
    changed = target_group(ground, HealthCheckPath="/health")
    assert stack.update({"Group": changed}) == "UPDATE_COMPLETE"
    assert stack.physical_id("Group") == old, "its health check is no reason to replace it"

    def targets(arn: str) -> list[str]:
        rows = elb.describe_target_health(TargetGroupArn=arn)["TargetHealthDescriptions"]
        return [row["Target"]["Id"] for row in rows]

    taken = f"/{uuid.uuid4().hex[:8]}"
    ground.aws.client("ssm").put_parameter(Name=taken, Value="theirs", Type="String")
    failing = {"Group": target_group(ground, Port=8082), "Fails": parameter(taken, DependsOn="Group")}
    assert stack.update(failing) == "UPDATE_ROLLBACK_COMPLETE"
    assert stack.physical_id("Group") == old
    assert targets(old) == ids
    assert stack.update({"Group": target_group(ground, Port=8082)}) == "UPDATE_COMPLETE"
    new = stack.physical_id("Group")
    assert new != old
    assert target_groups(ground) >= {new}
    assert old not in target_groups(ground)
    assert targets(new) == []


@pytest.mark.parametrize(
    "change", [{"Port": 8082}, {"Protocol": "HTTPS"}, {"VpcId": "vpc-1"}, {"TargetType": "ip"}]
)
def test_a_target_group_with_a_name_cannot_be_replaced(ground: Ground, change: dict[str, Any]) -> None:
    """What would replace it fails and changes nothing, because two groups can't have one name."""
    stack, name = Stack(ground.aws), f"tg-{uuid.uuid4().hex[:8]}"
    assert stack.create({"Group": target_group(ground, Name=name)}) == "CREATE_COMPLETE"
    arn = stack.physical_id("Group")
    changed = {"Group": target_group(ground, Name=name, **change)}
    assert stack.update(changed) == "UPDATE_ROLLBACK_COMPLETE"
    assert (
        "CloudFormation cannot update a stack when a custom-named resource requires replacing"
        in stack.reason()
    )
    assert stack.physical_id("Group") == arn
    (group,) = ground.aws.elb.describe_target_groups(TargetGroupArns=[arn])["TargetGroups"]
    assert (group["Port"], group["Protocol"], group["VpcId"]) == (8081, "HTTP", ground.vpc)
    assert stack.update({"Group": target_group(ground, Port=8082, Name=f"{name}-2")}) == "UPDATE_COMPLETE"


def test_a_policy_can_allow_one_path_of_parameters(ground: Ground) -> None:
    """GetParametersByPath is about its path: a role that may read one path can't read another."""
    somebody = ground.aws.assume(
        {
            "Effect": "Allow",
            "Action": "ssm:GetParametersByPath",
            "Resource": "arn:aws:ssm:us-east-1:000000000000:parameter/mine",
        }
    )
    ssm = somebody.client("ssm")
    assert ssm.get_parameters_by_path(Path="/mine")["Parameters"] == []
    with pytest.raises(ClientError, match="AccessDenied"):
        ssm.get_parameters_by_path(Path="/theirs")


def test_a_version_of_a_parameter_is_asked_for_with_its_number(ground: Ground) -> None:
    """No page says whether IAM is: here it is, so a policy must name the versions as well."""
    name = f"/{uuid.uuid4().hex[:8]}"
    for value in ("one", "two"):
        ground.aws.client("ssm").put_parameter(Name=name, Value=value, Type="SecureString", Overwrite=True)
    arn = f"arn:aws:ssm:us-east-1:000000000000:parameter{name}"
    read = {"Effect": "Allow", "Action": "ssm:GetParameter"}
    ssm = ground.aws.assume({**read, "Resource": [arn, f"{arn}:*"]}).client("ssm")
    for at, value in (("", "two"), (":1", "one"), (":2", "two")):
        assert ssm.get_parameter(Name=name + at, WithDecryption=True)["Parameter"]["Value"] == value
    with pytest.raises(ClientError, match="AccessDenied"):
        ground.aws.assume({**read, "Resource": arn}).client("ssm").get_parameter(Name=f"{name}:1")


def test_queues_may_demand_tls(ground: Ground) -> None:
    """A queue that denies plain HTTP works: the local cloud stands for the far end of TLS."""
    name = f"q-{uuid.uuid4().hex[:8]}"
    deny = {
        "Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }  # fmt: skip
    policy = json.dumps({"Version": "2012-10-17", "Statement": [deny]})
    url = ground.aws.sqs.create_queue(QueueName=name, Attributes={"Policy": policy})["QueueUrl"]
    somebody = ground.aws.assume({"Effect": "Allow", "Action": "sqs:*", "Resource": "*"})
    assert somebody.sqs.send_message(QueueUrl=url, MessageBody="x")["MessageId"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('{"template": "{{ user }}"}', "nest another parameter"),
        ("x" * 8193, "less than or equal to 8192"),
    ],
)
def test_parameter_store_refuses_values(aws: Aws, value: str, words: str) -> None:
    """A value with double braces, or too long for any tier, is refused from a client and in a stack alike."""
    name = f"/{uuid.uuid4().hex[:8]}"
    with pytest.raises(ClientError, match="ValidationException") as refused:
        aws.client("ssm").put_parameter(Name=name, Value=value, Type="String", Tier="Intelligent-Tiering")
    assert words in str(refused.value)
    resource = parameter(name)
    resource["Properties"] |= {"Value": value, "Tier": "Intelligent-Tiering"}
    stack = Stack(aws)
    assert stack.create({"P": resource}) == "ROLLBACK_COMPLETE"
    assert words in stack.reason()


def test_a_standard_parameter_takes_four_kilobytes(aws: Aws) -> None:
    """More is refused for a standard parameter, and makes one with intelligent tiering an advanced one."""
    ssm, name = aws.client("ssm"), f"/{uuid.uuid4().hex[:8]}"
    with pytest.raises(ClientError, match="maximum parameter value of 4096 characters"):
        ssm.put_parameter(Name=name, Value="x" * 4097, Type="String")
    for size in (4096, 8192):
        ssm.put_parameter(
            Name=name, Value="x" * size, Type="String", Tier="Intelligent-Tiering", Overwrite=True
        )


def test_a_load_balancer_asks_for_a_key_that_its_stack_made(ground: Ground) -> None:
    """A rule on a header, with a secret's value in it: without the key there is the listener's own answer."""
    lb, listener = "AWS::ElasticLoadBalancingV2::LoadBalancer", "AWS::ElasticLoadBalancingV2::Listener"
    name = f"lb-{uuid.uuid4().hex[:8]}"
    bearer = {"Fn::Join": ["", ["Bearer {{resolve:secretsmanager:", {"Ref": "Key"}, ":SecretString:::}}"]]}
    resources: Resources = {
        "Key": {
            "Type": "AWS::SecretsManager::Secret",
            "Properties": {"GenerateSecretString": {"ExcludePunctuation": True, "PasswordLength": 48}},
        },
        "Group": target_group(ground),
        "Balancer": {"Type": lb, "Properties": {"Name": name, "Subnets": list(ground.subnets)}},
        "Listener": {
            "Type": listener,
            "Properties": {
                "LoadBalancerArn": {"Ref": "Balancer"}, "Port": 80, "Protocol": "HTTP",
                "DefaultActions": [
                    {
                        "Type": "fixed-response",
                        "FixedResponseConfig": {
                            "StatusCode": "401", "ContentType": "application/json", "MessageBody": "{}",
                        },
                    }
                ],
            },
        },
        "Rule": {
            "Type": "AWS::ElasticLoadBalancingV2::ListenerRule",
            "Properties": {
                "ListenerArn": {"Ref": "Listener"}, "Priority": 1,
                "Actions": [{"Type": "forward", "TargetGroupArn": {"Ref": "Group"}}],
                "Conditions": [
                    {
                        "Field": "http-header",
                        "HttpHeaderConfig": {"HttpHeaderName": "Authorization", "Values": [bearer]},
                    }
                ],
            },
        },
    }  # fmt: skip
    stack = Stack(ground.aws)
    assert stack.create(resources) == "CREATE_COMPLETE"
    secrets = ground.aws.client("secretsmanager")
    key = secrets.get_secret_value(SecretId=stack.physical_id("Key"))["SecretString"]
    (instance_id,) = ground.running(1)
    group = stack.physical_id("Group")
    ground.aws.elb.register_targets(TargetGroupArn=group, Targets=[{"Id": instance_id}])

    def get(**headers: str) -> tuple[int, str | None]:
        connection = http.client.HTTPConnection(ground.aws.endpoint.removeprefix("http://"))
        connection.request("GET", f"/_alb/{name}/", headers=headers)
        response = connection.getresponse()
        response.read()
        connection.close()
        return response.status, response.getheader("content-type")

    eventually(lambda: get(Authorization=f"Bearer {key}")[0] == 200, "the key is taken")
    for headers in (
        {},
        {"Authorization": "Bearer *"},
        {"Authorization": key},
        {"X-Api-Key": f"Bearer {key}"},
    ):
        assert get(**headers) == (401, "application/json"), headers
    assert get(authorization=f"bearer {key.upper()}")[0] == 200, (
        "ELB doesn't tell capitals from small letters"
    )


def secure_listener(certificate: str, port: int = 443) -> dict[str, Any]:
    """A listener for HTTPS as a resource."""
    return {
        "Type": "AWS::ElasticLoadBalancingV2::Listener",
        "Properties": {
            "LoadBalancerArn": {"Ref": "Balancer"}, "Port": port, "Protocol": "HTTPS",
            "Certificates": [{"CertificateArn": certificate}],
            "DefaultActions": [{"Type": "forward", "TargetGroupArn": {"Ref": "Group"}}],
        },
    }  # fmt: skip


def test_a_load_balancer_serves_https_with_its_listeners_certificate(ground: Ground) -> None:
    """By the certificate's domain, and not by its own name; a new certificate counts from then on.

    At port 80 there is that listener's own answer.
    """
    name, domain = f"lb-{uuid.uuid4().hex[:8]}", "llm.example.com"
    signed = SelfSigned.of(domain)
    acm = ground.aws.client("acm")
    arn = acm.import_certificate(Certificate=signed.certificate, PrivateKey=signed.key)["CertificateArn"]
    balancer = {
        "Type": "AWS::ElasticLoadBalancingV2::LoadBalancer",
        "Properties": {"Name": name, "Subnets": list(ground.subnets)},
    }
    refusal = {"StatusCode": "403", "ContentType": "application/json", "MessageBody": "{}"}
    plain = {
        "Type": "AWS::ElasticLoadBalancingV2::Listener",
        "Properties": {
            "LoadBalancerArn": {"Ref": "Balancer"}, "Port": 80, "Protocol": "HTTP",
            "DefaultActions": [{"Type": "fixed-response", "FixedResponseConfig": refusal}],
        },
    }  # fmt: skip
    resources = {"Group": target_group(ground), "Balancer": balancer, "Plain": plain}
    stack = Stack(ground.aws)
    assert stack.create({**resources, "Https": secure_listener(arn)}) == "CREATE_COMPLETE"
    port = eventually(lambda: ground.aws.local.https_port(name), "it listens for HTTPS")
    (instance_id,) = ground.running(1)
    group = stack.physical_id("Group")
    ground.aws.elb.register_targets(TargetGroupArn=group, Targets=[{"Id": instance_id}])
    eventually(lambda: signed.ask(port, domain)[0] == 200, "it forwards")
    with pytest.raises(SSLCertVerificationError, match="Hostname mismatch"):
        signed.ask(port, f"{name}-0123456789.us-east-1.elb.amazonaws.com")
    connection = http.client.HTTPConnection(ground.aws.endpoint.removeprefix("http://"))
    connection.request("POST", f"/_alb/{name}/", body="{}")
    assert connection.getresponse().status == 403
    connection.close()
    assert ground.aws.local.counters(name)["HTTPCode_ELB_4XX_Count"] == 1, "what is refused is no 5xx"
    another = SelfSigned.of(domain)
    acm.import_certificate(CertificateArn=arn, Certificate=another.certificate, PrivateKey=another.key)

    def is_shown() -> bool:
        try:
            return another.ask(port, domain)[0] == 200
        except SSLCertVerificationError:
            return False

    eventually(is_shown, "the certificate that was imported again is shown")


@pytest.mark.parametrize("certificates", [[], ["arn:aws:acm:us-east-1:000000000000:certificate/none"]])
def test_a_listener_for_https_needs_a_certificate(ground: Ground, certificates: list[str]) -> None:
    """One that exists, or it isn't made."""
    listener = secure_listener("")
    listener["Properties"]["Certificates"] = [{"CertificateArn": arn} for arn in certificates]
    balancer = {
        "Type": "AWS::ElasticLoadBalancingV2::LoadBalancer",
        "Properties": {"Subnets": list(ground.subnets)},
    }
    stack = Stack(ground.aws)
    resources = {"Group": target_group(ground), "Balancer": balancer, "Https": listener}
    assert stack.create(resources) == "ROLLBACK_COMPLETE"
    assert "certificate" in stack.reason().lower()


def test_a_nat_gateway_needs_an_internet_gateway(ground: Ground) -> None:
    """Without one in its network it isn't made, as on AWS; with one it has its address."""
    nat = {
        "Type": "AWS::EC2::NatGateway",
        "Properties": {
            "SubnetId": ground.subnets[0],
            "AllocationId": {"Fn::GetAtt": ["Address", "AllocationId"]},
        },
    }
    address = {"Type": "AWS::EC2::EIP", "Properties": {"Domain": "vpc"}}
    stack = Stack(ground.aws)
    assert stack.create({"Address": address, "Nat": nat}) == "ROLLBACK_COMPLETE"
    assert "has no Internet gateway attached" in stack.reason()
    gateway = ground.aws.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ground.aws.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=ground.vpc)
    another = Stack(ground.aws)
    assert another.create({"Address": address, "Nat": nat}) == "CREATE_COMPLETE"
    found = ground.aws.ec2.describe_nat_gateways(NatGatewayIds=[another.physical_id("Nat")])["NatGateways"]
    assert [gateway["State"] for gateway in found] == ["available"]
    another.remove()
    assert not ground.aws.ec2.describe_addresses()["Addresses"]


@pytest.mark.parametrize("lacking", ["NAT gateways", "functions", "load balancers"])
def test_a_zone_may_lack_something(ground: Ground, lacking: str) -> None:
    """What AWS doesn't offer there fails its stack, in words of which `up` makes a remedy."""
    subnet = ground.aws.ec2.create_subnet(
        VpcId=ground.vpc, CidrBlock="10.0.250.0/24", AvailabilityZone=CONSTRAINED_ZONE
    )["Subnet"]["SubnetId"]
    function = {
        "Code": {"ZipFile": "def handler(*_): pass"}, "Handler": "index.handler", "Runtime": "python3.13",
        "Role": "arn:aws:iam::000000000000:role/none",
        "VpcConfig": {"SubnetIds": [ground.subnets[0], subnet]},
    }  # fmt: skip
    refused = {
        "NAT gateways": ("AWS::EC2::NatGateway", {"SubnetId": subnet, "AllocationId": "eipalloc-1"}),
        "functions": ("AWS::Lambda::Function", function),
        "load balancers": (
            "AWS::ElasticLoadBalancingV2::LoadBalancer",
            {"Name": f"lb-{uuid.uuid4().hex[:8]}", "Subnets": [ground.subnets[0], subnet]},
        ),
    }
    type_, properties = refused[lacking]
    stack = Stack(ground.aws)
    assert stack.create({"There": {"Type": type_, "Properties": properties}}) == "ROLLBACK_COMPLETE"
    assert "name the zones, -c zones=" in remedy(stack.reason(), "us-east-1")


def test_a_deletion_that_failed_is_told_from_the_one_before(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What something needs that couldn't be deleted stays; a second deletion has failures of its own only."""
    for setting, value in {
        "AWS_ENDPOINT_URL": ground.aws.endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(setting, value)
    stacks = Stacks(Clients(boto3.Session(region_name="us-east-1")))
    ssm, iam = ground.aws.client("ssm"), ground.aws.client("iam")
    user, name = f"user-{uuid.uuid4().hex[:8]}", f"/{uuid.uuid4().hex[:8]}"
    stack = Stack(ground.aws)
    resources: Resources = {
        "Needed": parameter(name),
        "Free": parameter(f"{name}-free"),
        "User": {"Type": "AWS::IAM::User", "Properties": {"UserName": user}, "DependsOn": "Needed"},
    }
    assert stack.create(resources) == "CREATE_COMPLETE"
    key = iam.create_access_key(UserName=user)["AccessKey"]["AccessKeyId"]
    found = stacks.find(stack.name)
    assert found is not None
    events = []
    for _ in range(2):
        events.append(stacks.delete(found))
        failures = eventually(lambda: stacks.failures(found, events[-1]), "it has failed")
        assert [failure.partition(":")[0] for failure in failures] == ["User"]
        assert ssm.get_parameters(Names=[name, f"{name}-free"])["InvalidParameters"] == [f"{name}-free"]
    iam.delete_access_key(UserName=user, AccessKeyId=key)
    last = stacks.delete(found)
    eventually(lambda: (now := stacks.find(found.id)) and now.is_gone, "it is gone")
    assert stacks.failures(found, last) == []
    assert stacks.failures(found, events[0]), "what failed is still told of the deletions before"


@pytest.mark.parametrize("what", ["AWS::EC2::EIP", "AWS::EC2::SecurityGroup"])
def test_what_goes_beyond_a_quota_is_refused(ground: Ground, what: str) -> None:
    """A sixth address, and a sixty-first rule, fail their stack, in words of which `up` makes a remedy."""
    rules = [
        {"CidrIp": f"10.{n}.0.0/16", "IpProtocol": "tcp", "FromPort": 80, "ToPort": 80} for n in range(61)
    ]
    group = {"GroupDescription": "test", "VpcId": ground.vpc, "SecurityGroupIngress": rules}
    resources = (
        {f"Address{n}": {"Type": what, "Properties": {"Domain": "vpc"}} for n in range(6)}
        if what.endswith("EIP")
        else {"Group": {"Type": what, "Properties": group}}
    )
    stack = Stack(ground.aws)
    assert stack.create(resources) == "ROLLBACK_COMPLETE"
    assert "us-east-1.console.aws.amazon.com/servicequotas" in remedy(stack.reason(), "us-east-1")
