"""The instance metadata service (IMDSv2): who an instance is, and the credentials of its role.

On EC2 it answers at an address that each instance reaches as its own. Here all share a host, so the ID is in
the path, and the instance is told with AWS_EC2_METADATA_SERVICE_ENDPOINT, which AWS's SDKs obey.
"""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime, timedelta

from lab.local.cloud import EmulatedCloud
from lab.local.http import HttpRequest, Response
from lab.local.instances import LocalInstance
from lab.local.ministack import MiniStack

PREFIX = "/_metadata/"
TAGS = "tags/instance/"
ROLE = "iam/security-credentials/"
CREDENTIALS_HOLD = timedelta(hours=6)
TOKEN_HEADER = "x-aws-ec2-metadata-token"  # noqa: S105 - a header's name


def address(endpoint: str, instance_id: str) -> str:
    """Where an instance finds its metadata."""
    return f"{endpoint}{PREFIX}{instance_id}"


class Metadata:
    """Answers instances. Like EC2 with `HttpTokens: required` it answers nobody without a token."""

    def __init__(self, cloud: EmulatedCloud, ministack: MiniStack) -> None:
        self._cloud = cloud
        self._ministack = ministack
        self._tokens: set[str] = set()

    def answer(self, request: HttpRequest) -> Response:
        """A token, or what the path names of the instance."""
        instance_id, _, path = request.path.removeprefix(PREFIX).partition("/latest/")
        instance = self._cloud.instances.get(instance_id)
        if instance is None:
            return Response(404)
        if (request.method, path) == ("PUT", "api/token"):
            self._tokens.add(token := secrets.token_urlsafe())
            seconds = request.headers.get(f"{TOKEN_HEADER}-ttl-seconds", "60")
            return Response(200, token.encode(), {f"{TOKEN_HEADER}-ttl-seconds": seconds})
        if request.headers.get(TOKEN_HEADER) not in self._tokens:
            return Response(401)
        found = self._look_up(instance, path.removeprefix("meta-data/"))
        return Response(404) if found is None else Response(200, found.encode())

    def _look_up(self, instance: LocalInstance, path: str) -> str | None:
        match path:
            case "ami-id":
                return instance.spec.image_id
            case "instance-id":
                return instance.id
            case "instance-type":
                return instance.instance_type
            case "local-ipv4":
                return instance.address
            case "placement/availability-zone":
                return instance.zone
            case "placement/region":
                return instance.zone[:-1]
        if instance.spec.shows_tags and path.startswith(TAGS):
            return instance.tags.get(path.removeprefix(TAGS))
        role = self._role(instance)
        if role is None or not path.startswith(ROLE):
            return None
        name = role.rpartition("/")[2]
        if path == ROLE:
            return name
        return self._credentials(role, instance.id) if path == ROLE + name else None

    def _role(self, instance: LocalInstance) -> str | None:
        profile = instance.spec.instance_profile_arn
        with self._ministack.scope():
            found = self._ministack.role_of_instance_profile(profile, None) if profile else None
        return found[1] if found else None

    def _credentials(self, role: str, session: str) -> str:
        key, secret, token = self._ministack.role_credentials(role, session)
        expires = datetime.now(UTC) + CREDENTIALS_HOLD
        return json.dumps(
            {
                "Code": "Success",
                "Type": "AWS-HMAC",
                "LastUpdated": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
                "AccessKeyId": key,
                "SecretAccessKey": secret,
                "Token": token,
                "Expiration": f"{expires:%Y-%m-%dT%H:%M:%SZ}",
            }
        )
