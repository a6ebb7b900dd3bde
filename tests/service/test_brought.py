"""What a file brings: its form, what it contradicts, and what SpotRelay can't see of it."""

from __future__ import annotations

import pytest

from .conftest import GOOD, Loader, Refuser

ELB = "arn:aws:elasticloadbalancing:us-east-1:123456789012"
GROUP = f"{ELB}:targetgroup/chat/0123456789abcdef"
LISTENER = f"{ELB}:listener/app/web/0123456789abcdef/fedcba9876543210"
PROFILE = "arn:aws:iam::123456789012:instance-profile/gpu"
SG = "security_groups: [sg-0123456789abcdef0]"


def bringing(*fields: str, service: str = "", resources: str = "") -> str:
    """The good file with these fields under `spotrelay`."""
    text = GOOD.replace("  surge: 1\n", f"  surge: 1\n{service}")
    text = text.replace("  ports: 8081\n", f"  ports: 8081\n{resources}")
    return text + "spotrelay:\n" + "".join(f"  {field}\n" for field in fields)


def rule(conditions: str, arn: str = LISTENER, priority: int = 7) -> str:
    """A listener with this rule."""
    return f"listener: {{arn: '{arn}', priority: {priority}, {conditions}}}"


BALANCERS = "SpotRelay doesn't know the security group of your load balancer, so it can't let it in: name"

BAD = {
    "no security group": (
        bringing("security_groups: [web]"),
        "spotrelay.security_groups[0]: expected a security group's ID such as sg-0123456789abcdef0,",
    ),
    "too many security groups": (
        bringing(f"security_groups: [{', '.join(f'sg-0000000{n}' for n in range(5))}]"),
        "spotrelay.security_groups: expected a list of at most 4 security groups",
    ),
    "a profile's name": (
        bringing("instance_profile: gpu"),
        "spotrelay.instance_profile.arn: expected an instance profile's ARN,",
    ),
    "a role in a profile's place": (
        bringing("instance_profile: arn:aws:iam::123456789012:role/gpu"),
        "spotrelay.instance_profile.arn: expected an instance profile's ARN,",
    ),
    "a profile and a role of two accounts": (
        bringing(f"instance_profile: {{arn: '{PROFILE}', role: 'arn:aws:iam::111111111111:role/gpu'}}"),
        "spotrelay.instance_profile.role: its account is 111111111111, and that of"
        " spotrelay.instance_profile.arn is 123456789012: change one of the two",
    ),
    "a network load balancer's listener": (
        bringing(SG, rule("paths: [/a]", LISTENER.replace("/app/", "/net/"))),
        "spotrelay.listener.arn: expected an Application Load Balancer's listener,",
    ),
    "no condition": (
        bringing(SG, f"listener: {{arn: '{LISTENER}', priority: 7}}"),
        "spotrelay.listener: a rule needs a condition: say paths, such as [/chat/*], hosts, or both",
    ),
    "too many conditions": (
        bringing(SG, rule("paths: [/a, /b, /c], hosts: [a.b, c.d, e.f]")),
        "spotrelay.listener: a rule takes 5 paths and hosts together, got 6:",
    ),
    "too many paths": (
        bringing(SG, rule("paths: [/a, /b, /c, /d]")),
        "spotrelay.listener: a rule takes 3 paths, got 4: remove some, or say several with one pattern",
    ),
    "too many hosts": (
        bringing(SG, rule("hosts: [a.b, c.d, e.f, g.h]")),
        "spotrelay.listener: a rule takes 3 hosts, got 4:",
    ),
    "too many wildcards": (
        bringing(SG, rule("paths: [/a/*, /b/?/*, /c/*], hosts: ['*.b', '*.d']")),
        "spotrelay.listener: a rule takes 5 wildcards, got 6:",
    ),
    "no path": (
        bringing(SG, rule("paths: [chat]")),
        "spotrelay.listener.paths[0]: expected a list of path patterns, such as [/chat/*], got 'chat'",
    ),
    "no host": (
        bringing(SG, rule("hosts: [chat]")),
        "spotrelay.listener.hosts[0]: expected a list of host names, such as [chat.example.com], got 'chat'",
    ),
    "no priority": (
        bringing(SG, rule("paths: [/a]", priority=0)),
        "spotrelay.listener.priority: expected a whole number from 1 to 50000, got 0",
    ),
    "two ways in": (
        bringing(SG, f"target_group: {GROUP}", rule("paths: [/a]")),
        "spotrelay.target_group: spotrelay.listener is here, too, and for that one SpotRelay makes a target"
        " group: remove one",
    ),
    "a target group that nothing lets in": (
        bringing(f"target_group: {GROUP}"),
        f"spotrelay.target_group: {BALANCERS} the groups that do in spotrelay.security_groups",
    ),
    "a listener that nothing lets in": (
        bringing(rule("paths: [/a]")),
        f"spotrelay.listener: {BALANCERS} the groups that do in spotrelay.security_groups",
    ),
    "a certificate beside a target group": (
        bringing(
            SG,
            f"target_group: {GROUP}",
            "certificate_arn: arn:aws:acm:us-east-1:123456789012:certificate/1",
        ),
        "spotrelay.certificate_arn: with spotrelay.target_group, your load balancer's listener has its"
        " certificate: set it there, and remove this",
    ),
    "a domain beside a listener": (
        bringing(SG, rule("paths: [/a]"), "domain: chat.example.com"),
        "spotrelay.domain: with spotrelay.listener, your load balancer has its names: set it there",
    ),
    "a time-out beside a listener": (
        bringing(SG, rule("paths: [/a]"), service="  idle_timeout_seconds: 120\n"),
        "service.idle_timeout_seconds: with spotrelay.listener, your load balancer has its idle time-out:",
    ),
    "SkyServe's certificate beside a listener": (
        bringing(SG, rule("paths: [/a]"), service="  tls: {keyfile: a, certfile: b}\n"),
        "service.tls: with spotrelay.listener, your load balancer's listener has its certificate:",
    ),
    "a check beside a target group": (
        bringing(SG, f"target_group: {GROUP}", "health_check: /up"),
        "spotrelay.health_check: with spotrelay.target_group, your target group has its health check:",
    ),
    "a policy beside a target group": (
        bringing(SG, f"target_group: {GROUP}", service="  load_balancing_policy: round_robin\n"),
        "service.load_balancing_policy: with spotrelay.target_group, your target group has its algorithm:",
    ),
    "two regions": (
        bringing(
            SG,
            f"target_group: {GROUP}",
            "capacity_reservations: arn:aws:resource-groups:us-east-2:123456789012:group/a",
        ),
        "spotrelay.target_group: its region is us-east-1, and that of spotrelay.capacity_reservations is"
        " us-east-2: change one of the two",
    ),
    "two partitions": (
        bringing(SG, f"target_group: {GROUP}", f"instance_profile: {PROFILE.replace(':aws:', ':aws-cn:')}"),
        "spotrelay.instance_profile.arn: its partition is aws-cn, and that of spotrelay.target_group is aws:",
    ),
    "another region than the zones'": (
        bringing(SG, f"target_group: {GROUP}", resources="  zones: [us-west-2a, us-west-2b]\n"),
        "spotrelay.target_group: is in us-east-1, and resources.zones is us-west-2a, us-west-2b: change one",
    ),
    "another region than the file's": (
        bringing(SG, rule("paths: [/a]"), resources="  regions: [us-west-2]\n"),
        "spotrelay.listener.arn: is in us-east-1, and resources.regions is us-west-2: change one of the two",
    ),
    "requests that nobody counts": (
        bringing(SG, f"target_group: {GROUP}").replace(
            "  replicas: 2\n",
            "  replica_policy: {min_replicas: 1, max_replicas: 3, target_qps_per_replica: 2}\n",
        ),
        "spotrelay.target_group: a target group doesn't tell its load balancer, which counts the requests:",
    ),
    "a launch template": (
        bringing("launch_template: lt-0123456789abcdef0"),
        "spotrelay.launch_template: unknown field: a launch template can't be made from another one,",
    ),
    "a VPC": (
        bringing("vpc: vpc-1"),
        "spotrelay.vpc: unknown field: one VPC is for all services: -c vpc_id=vpc-…",
    ),
    "subnets": (
        bringing("subnets: [subnet-1]"),
        "spotrelay.subnets: unknown field: one VPC is for all services: -c vpc_id=vpc-…",
    ),
    "a key": (
        bringing("kms_key: arn:aws:kms:us-east-1:123456789012:key/1"),
        "spotrelay.kms_key: unknown field: one key is for all services: -c kms_key_arn=arn:aws:kms:…",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cant_be_is_told(problems: Refuser, case: str) -> None:
    """One line, at the field that the user wrote, with what to do."""
    text, expected = BAD[case]
    (problem,) = problems(text)
    assert expected in f"{problem.field}: {problem.message}"
    assert problem.line


def notices(loader: Loader, text: str) -> dict[str, str]:
    """By field."""
    return {notice.field: notice.message for notice in loader(text).notices}


def test_what_a_target_group_must_be_is_a_notice(service: Loader) -> None:
    """Synth can't look: the check's path, the drain, the port that must be let in."""
    found = notices(service, bringing(SG, f"target_group: {GROUP}", "drain_seconds: 50"))
    assert "such as GET /health, and a deregistration delay of 300 s" in found["spotrelay.target_group"]
    assert "let your load balancer reach port 8081" in found["spotrelay.security_groups"]


def test_what_a_profile_must_allow_is_a_notice(service: Loader) -> None:
    """By name, for the role that goes with it."""
    text = bringing(f"instance_profile: {PROFILE}") + "secrets: {TOKEN: /chat/token}\n"
    text += "file_mounts: {/models: 's3://models/llama'}\n"
    text = text.replace(
        "  ports:", "  image_id: docker:123456789012.dkr.ecr.us-east-1.amazonaws.com/a:1\n  ports:"
    )
    message = notices(service, text)["spotrelay.instance_profile"]
    assert message.startswith(
        "its role, arn:aws:iam::123456789012:role/gpu, must be allowed ssm:GetParameter"
    )
    for needed in ("/chat/token", "s3:GetObject", "from ECR"):
        assert needed in message


def test_what_needs_nothing_is_no_notice(service: Loader) -> None:
    """A profile of a service without secrets and files; groups beside SpotRelay's own balancer."""
    assert not notices(service, bringing(f"instance_profile: {PROFILE}", SG))


def test_a_named_role_is_the_profiles(service: Loader) -> None:
    """Whatever the profile's name."""
    role = "arn:aws:iam::123456789012:role/team/serving"
    profile = service(bringing(f"instance_profile: {{arn: '{PROFILE}', role: '{role}'}}")).instance_profile
    assert profile
    assert profile.role_arn == role
