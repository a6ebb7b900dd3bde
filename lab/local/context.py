"""What every handler of an AWS action gets: the local cloud, the request's parameters, and IAM's opinion."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lab.local.environment import ACCOUNT, REGION
from lab.local.http import HttpRequest, Response
from lab.local.ministack import MiniStack
from lab.local.wire import AwsError

if TYPE_CHECKING:
    from lab.local.cloud import EmulatedCloud

AWS_TAG_PREFIX = "aws:"
"""Such tags are AWS's own."""

Params = dict[str, Any]
Result = dict[str, Any]


class UnauthenticatedError(Exception):
    """The request's credentials failed; `response` is what MiniStack answers to that."""

    def __init__(self, response: Response) -> None:
        super().__init__("credentials failed")
        self.response = response


@dataclass(frozen=True, slots=True)
class Context:
    """One call of one action."""

    cloud: EmulatedCloud
    ministack: MiniStack
    request: HttpRequest
    params: Params
    is_denied: Callable[[str, str], bool]
    """Whether a service control policy denies an action on a resource; see `Faults.deny`."""

    def require(self, action: str, resource: str = "*", conditions: Mapping[str, Any] | None = None) -> None:
        """Go on only if IAM allows it.

        Raises:
            AwsError: it doesn't.
            UnauthenticatedError: nobody knows who is asking.
        """
        refusal = self.refusal(action, resource, conditions)
        if refusal:
            code = "UnauthorizedOperation" if action.startswith("ec2:") else "AccessDenied"
            raise AwsError(code, refusal, status=403)

    def end_dry_run(self) -> None:
        """Go on unless the request only asks whether it may be made.

        Raises:
            AwsError: it does, and it may.
        """
        if self.params.get("DryRun"):
            words = "Request would have succeeded, but DryRun flag is set."
            raise AwsError("DryRunOperation", words, status=412)

    def refusal(
        self, action: str, resource: str = "*", conditions: Mapping[str, Any] | None = None
    ) -> str | None:
        """Why IAM forbids it, or None if it allows it.

        Raises:
            UnauthenticatedError: nobody knows who is asking.
        """
        if self.is_denied(action, resource):
            return (
                f"User: {self.ministack.caller(self.request).arn} is not authorized to perform: {action} on "
                f"resource: {resource} with an explicit deny in a service control policy"
            )
        denial = self.ministack.denial(self.request, action, resource, conditions or {})
        if denial is None:
            return None
        if denial.unauthenticated:
            raise UnauthenticatedError(denial.unauthenticated)
        return denial.message


Handler = Callable[[Context], Result]


def ec2_arn(kind: str, name: str) -> str:
    """The ARN of an EC2 resource. Images and snapshots belong to others, so theirs name no account."""
    account = "" if kind in ("image", "snapshot") else ACCOUNT
    return f"arn:aws:ec2:{REGION}:{account}:{kind}/{name}"


def resource_tag_conditions(tags: Mapping[str, str]) -> dict[str, str]:
    """A resource's tags as condition keys."""
    return {f"{prefix}:ResourceTag/{key}": value for key, value in tags.items() for prefix in ("aws", "ec2")}


def request_tag_conditions(tags: Mapping[str, str]) -> dict[str, Any]:
    """Tags that a request sets as condition keys; none at all if it sets none, as on AWS."""
    if not tags:
        return {}
    return {"aws:TagKeys": list(tags), **{f"aws:RequestTag/{key}": value for key, value in tags.items()}}


def tags_for(specifications: list[dict[str, Any]], resource_type: str) -> dict[str, str]:
    """The tags that `TagSpecifications` give to one type of resource.

    Raises:
        AwsError: one of them is EC2's to set, whatever type of resource it is for, or stands there twice.
    """
    check_tag_keys(tag["Key"] for specification in specifications for tag in specification.get("Tags", []))
    tags: dict[str, str] = {}
    for specification in specifications:
        if specification.get("ResourceType") == resource_type:
            for tag in specification.get("Tags", []):
                if tag["Key"] in tags:
                    raise AwsError("InvalidParameterValue", f"Duplicate tag key '{tag['Key']}' specified.")
                tags[tag["Key"]] = tag.get("Value", "")
    return tags


def check_metadata_tags(keys: Iterable[str]) -> None:
    """Keys of tags that an instance reads from its metadata are parts of a path there.

    Raises:
        AwsError: one can't be, in EC2's words.
    """
    for key in keys:
        if not re.fullmatch(r"[0-9a-zA-Z\-_+=,.@:]{1,255}", key) or key in (".", "..", "_index"):
            raise AwsError(
                "InvalidParameterValue",
                f"'{key}' is not a valid tag key. Tag keys must match pattern"
                r" ([0-9a-zA-Z\\-_+=,.@:]{1,255}), and must not be a reserved name ('.', '..', '_index')",
            )


def check_tag_keys(keys: Iterable[str]) -> None:
    """Nobody but AWS sets or removes tags whose names begin with `aws:`.

    Raises:
        AwsError: one does.
    """
    for key in keys:
        if key.startswith(AWS_TAG_PREFIX):
            raise AwsError(
                "InvalidParameterValue",
                f"Value ( {key} ) for parameter key is invalid. "
                "Tag keys starting with 'aws:' are reserved for internal use",
            )
