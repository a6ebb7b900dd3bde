"""What a user can choose at synth, and what becomes of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spotrelay.operator.deploy.stacks import Stacks
from spotrelay.plane.core.names import Env
from stacks.application import CONTROL_PLANE, NETWORK, SERVICE_PREFIX
from stacks.settings import AppSettings, SettingsError
from tests.template.conftest import SERVICE_FILES, synthesize
from tests.template.support import Template, as_list, flat, function, ingress, warnings_of

CERTIFICATE = "arn:aws:acm:us-east-1:000000000000:certificate/1"

KEY = "arn:aws:kms:us-east-1:000000000000:key/01234567-89ab"

GIVEN = {
    "vpc_id": "vpc-00000001",
    "subnets": "subnet-00000001=us-east-1a,subnet-00000002=us-east-1b",
    "load_balancer_subnets": "subnet-00000008=us-east-1a,subnet-00000009=us-east-1b",
}

IN_EU = {"account": "000000000000", "region": "eu-west-1"}
IN_US_WEST_1 = {"account": "000000000000", "region": "us-west-1"}
PUBLIC = {"internet_facing": "true"}


def test_nothing_need_be_chosen() -> None:
    """Without any context there is a control plane, in whatever account and region the CDK finds."""
    assert AppSettings.from_context(dict[str, str]().get) == AppSettings()


def test_each_stack_keeps_the_settings_that_change_it(tmp_path: Path) -> None:
    """For the next deployment, which reads them as they were said; what was left empty is none."""
    file = tmp_path / "chat.yaml"
    file.write_text(SERVICE_FILES["demo"].read_text(encoding="utf-8"), encoding="utf-8")
    context: dict[str, Any] = {
        "services": [str(file)], "alarm_email": "a@b", "zones": ["us-east-1a", "us-east-1b"],
        "template_conditions": False, "api_keys": "web,batch", "nat_gateways": "", "metrics": "all",
    }  # fmt: skip
    assembly = synthesize(tmp_path / "out", AppSettings.from_context(context.get))
    clients: Any = SimpleNamespace(
        cloudformation=SimpleNamespace(
            describe_stacks=lambda StackName: {  # noqa: N803
                "Stacks": [{"StackId": "arn", "StackName": StackName, "StackStatus": "CREATE_COMPLETE"}]
            },
            get_template=lambda StackName: {  # noqa: N803
                "TemplateBody": (assembly / f"{StackName}.template.json").read_text(encoding="utf-8")
            },
        )
    )
    stacks = Stacks(clients)
    kept = {"alarm_email": "a@b", "metrics": "all", "template_conditions": "false"}
    assert stacks.settings(CONTROL_PLANE) == kept
    assert stacks.settings(NETWORK) == {"zones": "us-east-1a,us-east-1b"}
    assert stacks.settings(f"{SERVICE_PREFIX}demo") == {"api_keys": "web,batch"}


def test_the_command_lines_region_is_the_target() -> None:
    """Where the CDK's command line knows the region, what lies in another one is refused, too."""
    with pytest.raises(SettingsError, match="zones: us-east-1a isn't in eu-west-1"):
        AppSettings.from_context({"zones": "us-east-1a,us-east-1b"}.get, {"CDK_DEFAULT_REGION": "eu-west-1"})


def test_lists_come_from_a_file_or_a_command_line() -> None:
    """cdk.json has lists, `-c` has text with commas: both say the same."""
    wanted = (Path("a.yaml"), Path("b.yaml"))
    assert AppSettings.from_context({"services": "a.yaml, b.yaml"}.get).services == wanted
    assert AppSettings.from_context({"services": ["a.yaml", "b.yaml"]}.get).services == wanted


def test_envs_come_from_the_command_line_and_a_file(tmp_path: Path) -> None:
    """As with `spotrelay validate`: what is said by name counts before the file."""
    file = tmp_path / "more.env"
    file.write_text("A=1\nB=2\n", encoding="utf-8")
    settings = AppSettings.from_context({"env": "B=two,C=3", "env_file": str(file)}.get)
    assert settings.inputs.envs == {"A": "1", "B": "two", "C": "3"}


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({"services": 3}, "services: expected a list or comma-separated text, got 3"),
        ({"env": "1=x"}, "env: expected NAME=VALUE, such as MODEL=my/model, got '1'"),
        ({"env_file": 3}, "env_file: expected a path, got 3"),
        ({"env_file": "/none"}, "env_file: /none is no file with NAME=VALUE lines"),
        ({"account": "12"}, "account: expected twelve digits, got '12'"),
        ({"account": "000000000000"}, "belong together"),
        ({"region": "mars"}, "region: expected a region such as us-east-1, got 'mars'"),
        ({"internet_facing": "maybe"}, "internet_facing: expected true or false, got 'maybe'"),
        (
            {"certificate_arn": "mine"},
            "certificate_arn: expected an ACM certificate's ARN, arn:aws:acm:REGION:",
        ),
        ({"alarm_email": "me"}, "alarm_email: expected an e-mail address, got 'me'"),
        ({"vpc_id": "vpc-00000001"}, "vpc_id needs subnets"),
        ({"subnets": GIVEN["subnets"]}, "needs vpc_id"),
        (
            {"vpc_id": "vpc-00000001", "subnets": "subnet-00000001"},
            "expected subnet-0123456789abcdef0=us-east-1a,",
        ),
        ({"vpc_id": "vpc-00000001", "subnets": "subnet-00000001=us-east-1a"}, "two zones or more, got 1"),
        (
            {"vpc_id": "vpc-00000001", "subnets": "subnet-00000001=us-east-1a,subnet-00000002=us-east-1a"},
            "two subnets in us-east-1a",
        ),
        ({"zones": "us-east-1a,us-east-1-bos-1a"}, "zones: expected zones such as us-east-1a"),
        ({"zones": "us-east-1a"}, "zones: a load balancer needs two zones"),
        (
            {"kms_key_arn": "alias/mine"},
            "kms_key_arn: expected a KMS key's ARN (arn:aws:kms:us-east-1:…:key/…)",
        ),
        (
            {"kms_key_arn": KEY, "account": "000000000000", "region": "eu-west-1"},
            f"kms_key_arn: {KEY} isn't in eu-west-1, which this would deploy to",
        ),
        ({"vpc_id": "vpc-1"}, "vpc_id: expected a VPC's ID, got 'vpc-1'"),
        ({**GIVEN, "zones": "us-east-1a,us-east-1b"}, "zones is for a VPC of SpotRelay's own"),
        ({**GIVEN, "nat_gateways": 1}, "nat_gateways is for a VPC of SpotRelay's own"),
        ({**GIVEN, "public_addresses": "true"}, "public_addresses is for a VPC of SpotRelay's own"),
        (
            {**GIVEN, "subnets": GIVEN["subnets"] + ",subnet-00000003=us-east-1c"},
            "load_balancer_subnets has none in us-east-1c, and subnets has: a replica there would get no",
        ),
        ({**GIVEN, **IN_EU}, "subnets: us-east-1a isn't in eu-west-1, which this would deploy to"),
        ({"zones": "us-east-1a,us-east-1b", **IN_EU}, "zones: us-east-1a isn't in eu-west-1"),
        ({"zones": "us-east-1a,us-west-2a"}, "zones: us-east-1a and us-west-2a are of two regions"),
        ({"zones": "us-east-1a,us-east-1a"}, "zones: us-east-1a stands there twice"),
        ({"zones": [f"us-east-1{letter}" for letter in "abcdefghi"]}, "the VPC has room for 8, got 9"),
        ({"nat_gateways": "4"}, "nat_gateways: expected 1 to 3, at most one per zone, got '4'"),
        ({"nat_gateways": "3", **IN_US_WEST_1}, "nat_gateways: expected 1 to 2"),
        ({"nat_gateways": 0}, "for none, give the replicas public addresses, -c public_addresses=true"),
        ({"nat_gateways": 1, "public_addresses": True}, "with public_addresses there is no NAT gateway"),
        ({"internet_facing": "true"}, "internet_facing: anybody could use the service. Say who may connect"),
        ({**PUBLIC, "allowed_cidrs": "0.0.0.0/0"}, "allowed_cidrs: 0.0.0.0/0 is everybody, or nearly"),
        ({**PUBLIC, "allowed_cidrs": "0.0.0.0/1,128.0.0.0/1"}, "allowed_cidrs: 0.0.0.0/1 is everybody"),
        ({"allowed_cidrs": "203.0.113.7/24"}, "got '203.0.113.7/24': 203.0.113.7/24 has host bits set"),
        ({"allowed_cidrs": "2001:db8::/32"}, "got '2001:db8::/32': not an IPv4 network"),
        ({"api_keys": "a b"}, "api_keys: expected names for keys, such as web,batch"),
        ({"api_keys": "web,Web"}, "api_keys: web stands there twice"),
        ({"api_keys": "a,b,c,d"}, "api_keys: at most 3, got 4"),
        ({"secret_versions": "HF_TOKEN=3"}, "such as /spotrelay/chat/HF_TOKEN=3, got 'HF_TOKEN=3'"),
        (
            {"model_versions": "s3://b/llama=3"},
            "model_versions: expected models with their digests, such as s3:",
        ),
        ({"model_versions": "/llama=" + "0" * 64}, "got '/llama=0000"),
        (
            {"pack_versions": "chat=3"},
            "pack_versions: expected services with the SHA-256 of their pack's manifest, such as chat=0123",
        ),
        ({"pack_versions": "=" + "0" * 64}, "spotrelay up finds them by itself"),
        ({"secret_versions": "/chat/token=0"}, "secret_versions: expected parameters with their versions"),
        (
            {"certificate_arn": CERTIFICATE, **IN_EU},
            "the certificate is in us-east-1, and this would deploy to eu-west-1",
        ),
        (
            {"certificate_arn": CERTIFICATE, "account": "111111111111", "region": "us-east-1"},
            "the certificate belongs to 000000000000, and this would deploy to 111111111111",
        ),
    ],
)
def test_a_bad_choice_is_named(context: dict[str, Any], expected: str) -> None:
    """Which setting, what was expected, what came."""
    with pytest.raises(SettingsError, match=r"^context ") as caught:
        AppSettings.from_context(context.get)
    assert expected in str(caught.value)


def test_versions_of_secrets_are_pinned_by_parameter() -> None:
    """As many as are named; none by default."""
    context = {"secret_versions": "/spotrelay/chat/A=3,/own/b=12"}
    assert AppSettings.from_context(context.get).secret_versions == {"/spotrelay/chat/A": 3, "/own/b": 12}
    assert AppSettings.from_context({"secret_versions": ""}.get).secret_versions == {}


def test_packs_are_pinned_by_service() -> None:
    """By the digest of a manifest, which says all that is in the pack."""
    context = {"pack_versions": f"chat={'0' * 64},demo={'1' * 64}"}
    assert AppSettings.from_context(context.get).pack_versions == {"chat": "0" * 64, "demo": "1" * 64}


def test_models_are_pinned_by_their_digests() -> None:
    """Whatever signs a prefix has."""
    context = {"model_versions": f"s3://weights/a=b={'0' * 64},s3://weights={'1' * 64}"}
    expected = {"s3://weights/a=b": "0" * 64, "s3://weights": "1" * 64}
    assert AppSettings.from_context(context.get).model_versions == expected


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The demo service with every choice made differently from the default."""
    context = {
        **GIVEN,
        "services": str(SERVICE_FILES["demo"]),
        "account": "000000000000",
        "region": "us-east-1",
        "internet_facing": "true",
        "allowed_cidrs": "203.0.113.0/24,198.51.100.7",
        "certificate_arn": CERTIFICATE,
        "access_logs_bucket": "my-logs",
        "alarm_email": "me@example.org",
        "kms_key_arn": KEY,
    }
    target = tmp_path_factory.mktemp("chosen")
    return Template.read(synthesize(target, AppSettings.from_context(context.get)), SERVICE_PREFIX + "demo")


def test_a_given_vpc_is_used_as_told(chosen: Template) -> None:
    """No VPC is made; instances and load balancer go where the user said."""
    assert not chosen.all("AWS::EC2::VPC")
    balancer = chosen.only("AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert balancer["Subnets"] == ["subnet-00000008", "subnet-00000009"]
    document = str(chosen.only("AWS::SSM::Parameter")["Value"])
    assert '"subnet-00000001": "us-east-1a", "subnet-00000002": "us-east-1b"' in document


def test_a_key_may_be_used_by_who_launches(tmp_path: Path) -> None:
    """The functions' roles name the key that was given; no condition on templates, and all metrics, if told
    so.
    """
    settings = AppSettings.from_context(
        {"kms_key_arn": KEY, "template_conditions": "false", "metrics": "all"}.get  # what `-c` gives
    )
    control_plane = Template.read(synthesize(tmp_path, settings), CONTROL_PLANE)
    for name in ("on_signal", "reconcile", "survey"):
        variables = function(control_plane, name)["Environment"]["Variables"]
        assert variables[Env.METRICS] == "all"
    assert "ec2:RunInstances" in str(control_plane.policies)
    assert "ec2:LaunchTemplate" not in str(control_plane.policies)
    assert "ec2:IsLaunchTemplateResource" not in str(control_plane.policies)
    named = [
        statement["Resource"]
        for policy in control_plane.policies.values()
        for statement in policy["PolicyDocument"]["Statement"]
        if "kms:CreateGrant" in as_list(statement["Action"])
    ]
    assert named == [KEY, KEY]


def test_a_permissions_boundary_holds_for_every_role(tmp_path: Path) -> None:
    """The CDK's own context for it, as docs/security.md tells: no role of any stack is made without."""
    services = (SERVICE_FILES["demo"],)
    context = {"@aws-cdk/core:permissionsBoundary": {"name": "our-boundary"}}
    target = synthesize(tmp_path, AppSettings(services=services), context)
    stacks = [Template.read(target, name) for name in (CONTROL_PLANE, SERVICE_PREFIX + "demo")]
    roles = [role for stack in stacks for role in stack.all("AWS::IAM::Role").values()]
    assert len(roles) >= 5  # three functions, the prober, the instances
    boundary = "arn:<AWS::Partition>:iam::<AWS::AccountId>:policy/our-boundary"
    assert {flat(role.get("PermissionsBoundary")) for role in roles} == {boundary}


def test_with_a_certificate_requests_are_served_over_tls_only(chosen: Template) -> None:
    """Port 80 forwards to nobody."""
    listeners = {x["Port"]: x for x in chosen.all("AWS::ElasticLoadBalancingV2::Listener").values()}
    assert listeners[443]["Protocol"] == "HTTPS"
    assert listeners[443]["Certificates"] == [{"CertificateArn": CERTIFICATE}]
    assert listeners[443]["DefaultActions"][0]["Type"] == "forward"
    assert listeners[80]["DefaultActions"][0]["Type"] == "fixed-response"


def test_a_service_can_be_public(chosen: Template) -> None:
    """By name, and to those who are named: at both ports, the one for requests and the one that refuses."""
    assert chosen.only("AWS::ElasticLoadBalancingV2::LoadBalancer")["Scheme"] == "internet-facing"
    assert ingress(chosen) == {(c, p) for c in ("203.0.113.0/24", "198.51.100.7/32") for p in (80, 443)}


def test_access_can_be_logged(chosen: Template) -> None:
    """Access logs go to the user's bucket."""
    attributes = chosen.only("AWS::ElasticLoadBalancingV2::LoadBalancer")["LoadBalancerAttributes"]
    assert {"Key": "access_logs.s3.bucket", "Value": "my-logs"} in attributes
    assert {"Key": "access_logs.s3.enabled", "Value": "true"} in attributes


def test_volumes_can_have_a_key_of_ones_own(chosen: Template) -> None:
    """The key of the context encrypts the instances' volumes."""
    (mapping,) = chosen.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]["BlockDeviceMappings"]
    assert mapping["Ebs"]["KmsKeyId"] == KEY


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ({"certificate_arn": CERTIFICATE, "cidrs": 31}, "31 allowed_cidrs at 2 ports are 62 rules"),
        ({"cidrs": 61}, "61 allowed_cidrs at 1 ports are 61 rules"),
        ({"zones": ",".join(f"us-east-1{z}" for z in "abcdef"), "nat_gateways": "6"}, "6 NAT gateways take"),
        ({"certificate_arn": CERTIFICATE, "cidrs": 30}, ""),
        ({"zones": ",".join(f"us-east-1{z}" for z in "abcdef"), "nat_gateways": "5"}, ""),
    ],
)
def test_what_most_accounts_cannot_have_is_warned_about(
    tmp_path: Path, context: dict[str, Any], words: str
) -> None:
    """It isn't refused, as both quotas can be raised; and nobody is warned who keeps to them."""
    cidrs = ",".join(f"10.{n}.0.0/16" for n in range(context.pop("cidrs", 0)))
    settings = AppSettings.from_context(
        {"services": str(SERVICE_FILES["demo"]), "allowed_cidrs": cidrs, **context}.get
    )
    warnings = [w for w in warnings_of(synthesize(tmp_path / "out", settings)) if "domain" not in w]
    assert [words in warning for warning in warnings] == [True] * bool(words)
