"""The way in that a service has unless its file names one: a load balancer of its own, and its listener."""

from __future__ import annotations

import json

from aws_cdk import Annotations, CfnOutput, Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from spotrelay.file.service import Service
from stacks.entrance import Entrance, target_group
from stacks.network import Network
from stacks.settings import AppSettings
from stacks.validation import acknowledge

PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
"""RFC 1918. Of these, what has a route into the VPC reaches an internal load balancer: the VPC itself, and
what is peered with it or connected by VPN."""

SECURITY_GROUP_RULES = 60
"""In each direction, by default: https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html"""

EVERYBODY = ("0.0.0.0/0",)

KEY_LENGTH = 48
"""Letters and digits. A listener rule takes 128 characters, `Bearer ` included, and ignores case: that leaves
36 to the power of 48, more than anybody can try."""


def _refusal(code: str, message: str) -> str:
    """In the form of OpenAI's API, whose clients show it."""
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": code}})


NO_KEY = _refusal(
    "invalid_api_key", "The request has no valid API key. Send one as Authorization: Bearer KEY."
)

NO_TLS = _refusal(
    "https_required",
    "Use https. This request crossed the network in clear text, and its API key, if it has one, with it: have"
    " another key made.",
)
"""No redirect: a client sends its key in clear text first and every time, and makes a GET of a POST."""


class LoadBalancer(Entrance):
    """An Application Load Balancer of the service's own, in front of its target group."""

    def __init__(
        self, scope: Construct, id_: str, *, service: Service, network: Network, settings: AppSettings
    ) -> None:
        super().__init__(scope, id_)
        self.security_group = security_group = ec2.SecurityGroup(
            self,
            "SecurityGroup",
            vpc=network.vpc,
            description=f"Load balancer of {service.name}",
            allow_all_outbound=False,
        )
        # A balancer connects to its targets and to nothing else: naming the instances' group would make each
        # of the two groups refer to the other. Every port: replicas of two versions may listen on two, and
        # CloudFormation would close the old one before they are gone.
        security_group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.all_tcp(), "requests and health checks")
        self.load_balancer = elbv2.ApplicationLoadBalancer(
            self,
            "Balancer",
            vpc=network.vpc,
            vpc_subnets=network.load_balancer_selection,
            internet_facing=settings.internet_facing,
            security_group=security_group,
            drop_invalid_header_fields=True,
            idle_timeout=Duration.seconds(service.idle_timeout_s),
        )
        self.target_group = target_group(self, service, network)
        self.target_group_arn = self.target_group.target_group_arn
        self.balancer = self.load_balancer.load_balancer_full_name
        dimensions = {"LoadBalancer": self.balancer}
        self._counted(balancer=dimensions, service=dimensions, is_own=True)
        # Another scheme is refused before anything is touched: a target group can't belong to two balancers,
        # so it is the new one's listener that CloudFormation fails at.
        certificate_arn = service.certificate_arn or settings.certificate_arn
        listener, ports = self._listen(settings, certificate_arn)
        if settings.api_keys:
            self._ask_for_key(listener, settings)
        self._let_in(security_group, settings, ports)
        self._log(settings)
        endpoint = self.load_balancer.load_balancer_dns_name
        CfnOutput(Stack.of(self), "Endpoint", value=endpoint)
        scheme = "https" if certificate_arn else "http"
        self.address = f"{scheme}://{service.domain or endpoint}"
        CfnOutput(Stack.of(self), "Address", value=self.address)
        if certificate_arn and not service.domain:
            Annotations.of(self).add_warning_v2(
                "spotrelay:no-domain",
                "no certificate is for the load balancer's own name: say by which name clients reach it,"
                " spotrelay.domain in the service file",
            )

    def _listen(
        self, settings: AppSettings, certificate_arn: str | None
    ) -> tuple[elbv2.ApplicationListener, list[int]]:
        """The listener that requests are served at, and every port that is listened on."""
        answer = (
            elbv2.ListenerAction.fixed_response(401, content_type="application/json", message_body=NO_KEY)
            if settings.api_keys
            else elbv2.ListenerAction.forward([self.target_group])
        )
        if not certificate_arn:
            if settings.internet_facing:
                Annotations.of(self).add_warning_v2(
                    "spotrelay:plain-http",
                    f"{'API keys, requests' if settings.api_keys else 'Requests'} and answers cross the"
                    " internet in clear text: name a certificate, -c certificate_arn=arn:aws:acm:…",
                )
            return self._at_port_80(answer), [80]
        listener = self.load_balancer.add_listener(
            "Https",
            port=443,
            protocol=elbv2.ApplicationProtocol.HTTPS,
            certificates=[elbv2.ListenerCertificate.from_arn(certificate_arn)],
            ssl_policy=elbv2.SslPolicy.RECOMMENDED_TLS,
            default_action=answer,
            open=False,
        )
        refusal = self._at_port_80(
            elbv2.ListenerAction.fixed_response(403, content_type="application/json", message_body=NO_TLS)
        )
        # A target group that no listener forwards to is out of use, with all of its targets.
        refusal.node.add_dependency(listener)
        return listener, [443, 80]

    def _at_port_80(self, action: elbv2.ListenerAction) -> elbv2.ApplicationListener:
        """Always the same listener: another one at its port would be refused while this one is there."""
        return self.load_balancer.add_listener(
            "Http", port=80, protocol=elbv2.ApplicationProtocol.HTTP, default_action=action, open=False
        )

    def _ask_for_key(self, listener: elbv2.ApplicationListener, settings: AppSettings) -> None:
        """Forward requests that carry one of the keys, whatever the server behind checks itself.

        One rule for all keys: rules have priorities, and taking one away would move the others.
        """
        bearers = []
        for name in settings.api_keys:
            secret = secretsmanager.Secret(
                self,
                f"ApiKey{name}",
                description=f"API key {name}",
                generate_secret_string=secretsmanager.SecretStringGenerator(
                    # Letters and digits: a condition takes * and ? for wildcards.
                    exclude_punctuation=True,
                    password_length=KEY_LENGTH,
                ),
            )
            acknowledge(
                secret,
                "AwsSolutions-SMG4",
                "A key that changed by itself would lock its clients out: add another to `-c api_keys`, then"
                " take this one away.",
            )
            # CloudFormation reads it at deployment: it is in no template.
            bearers.append(f"Bearer {secret.secret_value.unsafe_unwrap()}")
            CfnOutput(
                Stack.of(self),
                f"ApiKey{name}",
                value=secret.secret_arn,
                description=f"The secret that holds the API key {name}",
            )
        listener.add_action(
            "Key",
            priority=1,
            conditions=[elbv2.ListenerCondition.http_header("Authorization", bearers)],
            action=elbv2.ListenerAction.forward([self.target_group]),
        )

    def _let_in(self, security_group: ec2.SecurityGroup, settings: AppSettings, ports: list[int]) -> None:
        everybody = settings.internet_facing and not settings.allowed_cidrs
        rules = len(settings.allowed_cidrs) * len(ports)
        if rules > SECURITY_GROUP_RULES:
            Annotations.of(self).add_warning_v2(
                "spotrelay:many-rules",
                f"{len(settings.allowed_cidrs)} allowed_cidrs at {len(ports)} ports are {rules} rules of a"
                f" security group, and accounts have {SECURITY_GROUP_RULES} unless they have asked for more:"
                " name fewer and larger networks, or ask first (Service Quotas, VPC, L-0EA8095F)",
            )
        for cidr in settings.allowed_cidrs or (EVERYBODY if everybody else PRIVATE):
            for port in ports:
                security_group.add_ingress_rule(ec2.Peer.ipv4(cidr), ec2.Port.tcp(port), "clients")
        if everybody:
            acknowledge(
                security_group,
                "AwsSolutions-EC23",
                "Asked for with `-c internet_facing=true`: anybody may connect, and only who has an API key"
                " is served. `-c allowed_cidrs=…` narrows it.",
            )

    def _log(self, settings: AppSettings) -> None:
        if settings.access_logs_bucket:
            # Set as attributes: the bucket belongs to the user, and its policy, too.
            self.load_balancer.set_attribute("access_logs.s3.enabled", "true")
            self.load_balancer.set_attribute("access_logs.s3.bucket", settings.access_logs_bucket)
        acknowledge(
            self.load_balancer,
            "AwsSolutions-ELB2",
            "Access logs hold clients' addresses and cost storage: `-c access_logs_bucket=…` turns them on.",
        )
