"""What functions and drills may do with what a service brings: in the service's own stack.

So the control plane's template doesn't depend on the services, and the rights go with the service.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from aws_cdk import Fn, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotrelay.file.service import Service
from stacks.functions import DRILL, RoleName, role_export
from stacks.permissions import (
    AS_CDK_NAG_WRITES,
    Function,
    Given,
    Grant,
    Place,
    acknowledge_wildcards,
    drill_grants_for,
    grants_for,
)


class GivenPermissions(Construct):
    """A managed policy for each role that needs one. IAM attaches ten to a role by default."""

    def __init__(self, scope: Construct, id_: str, *, service: Service) -> None:
        super().__init__(scope, id_)
        place = Place.of(Stack.of(self))
        given = given_by(service)
        for function in Function:
            self._give(function, service, place, partial(grants_for, given, function))
        self._give(DRILL, service, place, partial(drill_grants_for, given))

    def _give(
        self, name: RoleName, service: Service, place: Place, granted: Callable[[Place], Sequence[Grant]]
    ) -> None:
        statements = [grant.statement() for grant in granted(place)]
        if not statements:
            return
        exported = Fn.import_value(role_export(name))
        policy = iam.ManagedPolicy(
            self,
            f"For-{name}",
            description=f"What SpotRelay may do with what {service.name} brings",
            statements=statements,
        )
        policy.attach_to_role(iam.Role.from_role_name(self, f"Role-{name}", exported, mutable=False))
        acknowledge_wildcards(policy, granted(AS_CDK_NAG_WRITES))


def given_by(service: Service) -> Given:
    """What of a service's own the functions must use."""
    profile = service.instance_profile
    return Given(
        service.name,
        target_group_arn=service.target_group,
        profile_arn=profile.arn if profile else None,
        role_arn=profile.role_arn if profile else None,
    )
