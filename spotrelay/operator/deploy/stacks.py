"""CloudFormation stacks as an operator's commands meet them: what is deployed, what failed, and their end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from botocore.exceptions import ClientError

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.names import SETTINGS_METADATA

NOT_THERE = "does not exist"
"""What CloudFormation says of a stack that isn't there: its code, ValidationError, stands for much else."""

STATES_OF_THE_GONE = ("DELETE_COMPLETE",)

STATES_OF_WHAT_NEVER_WAS = (
    "REVIEW_IN_PROGRESS",
    "ROLLBACK_COMPLETE",
    "ROLLBACK_FAILED",
    "ROLLBACK_IN_PROGRESS",
)
"""Its creation failed, or hasn't begun: the next deployment makes it from nothing."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack."""

    id: str
    """By which it can be asked for once it is deleted; by its name it can't."""
    name: str
    status: str
    outputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_busy(self) -> bool:
        """Whether CloudFormation is at work on it. A review waits for a person."""
        return self.status.endswith("_IN_PROGRESS") and self.status != "REVIEW_IN_PROGRESS"

    @property
    def is_gone(self) -> bool:
        """Whether it has been deleted."""
        return self.status in STATES_OF_THE_GONE

    @property
    def is_stuck(self) -> bool:
        """Whether a deletion of it has failed."""
        return self.status == "DELETE_FAILED"


def _as_said(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


class Stacks:
    """The stacks of an account in a region."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def find(self, name: str) -> Stack | None:
        """The stack of this name or ID; None: there is none.

        Raises:
            PortError: CloudFormation can't be asked.
        """
        try:
            answer = self._clients.cloudformation.describe_stacks(StackName=name)
        except ClientError as error:
            if NOT_THERE in str(error):
                return None
            with translated():
                raise
        (found,) = answer["Stacks"]
        return Stack(
            id=str(found["StackId"]),
            name=str(found["StackName"]),
            status=str(found["StackStatus"]),
            outputs={o["OutputKey"]: o["OutputValue"] for o in found.get("Outputs", [])},
        )

    def template(self, name: str) -> Mapping[str, Any] | None:
        """The stack's template as it was deployed; None: there is no such stack, or it never came to be.

        Raises:
            PortError: CloudFormation can't be asked.
        """
        stack = self.find(name)
        if stack is None or stack.status in STATES_OF_WHAT_NEVER_WAS:
            return None
        try:
            body = self._clients.cloudformation.get_template(StackName=name)["TemplateBody"]
        except ClientError as error:
            if NOT_THERE in str(error):
                return None
            with translated():
                raise
        template: Mapping[str, Any] = json.loads(body) if isinstance(body, str) else body
        return template

    def settings(self, name: str) -> dict[str, str] | None:
        """The settings that it was deployed with, as a command line says them; None: there is no such stack.

        A stack of before settings were kept has none.

        Raises:
            PortError: CloudFormation can't be asked.
        """
        template = self.template(name)
        if template is None:
            return None
        kept = template.get("Metadata", {}).get(SETTINGS_METADATA, {})
        return {name: _as_said(value) for name, value in kept.items()}

    def named(self, prefix: str, *, are_deployed: bool = False) -> list[str]:
        """Names of the stacks that begin so and aren't deleted, in order.

        With `are_deployed`, without those that never came to be.

        Raises:
            PortError: CloudFormation can't be asked.
        """
        without = STATES_OF_THE_GONE + (STATES_OF_WHAT_NEVER_WAS if are_deployed else ())
        with translated():
            pages = self._clients.cloudformation.get_paginator("list_stacks").paginate()
            return sorted(
                str(stack["StackName"])
                for page in pages
                for stack in page["StackSummaries"]
                if stack["StackName"].startswith(prefix) and stack["StackStatus"] not in without
            )

    def delete(self, stack: Stack) -> str:
        """Begin to delete it, with the role that it was deployed with; the event that came last before that.

        Raises:
            PortError: CloudFormation can't be asked, or refuses: another stack needs it.
        """
        with translated():
            last = next(self._events(stack), {"EventId": ""})
            self._clients.cloudformation.delete_stack(StackName=stack.id)
        return str(last["EventId"])

    def failures(self, stack: Stack, after: str) -> list[str]:
        """Why a deletion that was begun after this event failed, first things first: CloudFormation's words.

        None if it hasn't failed: a stack still shows how an earlier one ended when another has just begun.
        What was only cancelled, because something else had failed, says nothing.

        Raises:
            PortError: CloudFormation can't be asked.
        """
        with translated():
            events = list(takewhile(lambda event: event["EventId"] != after, self._events(stack)))
        failed = [event for event in reversed(events) if event["ResourceStatus"] == "DELETE_FAILED"]
        ends = [event for event in failed if event["PhysicalResourceId"] == stack.id]
        causes = [
            event
            for event in failed
            if event not in ends and "cancelled" not in event.get("ResourceStatusReason", "")
        ]
        return [
            f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', event['ResourceStatus'])}"
            for event in (causes or ends if ends else ())
        ]

    def _events(self, stack: Stack) -> Iterator[Mapping[str, Any]]:
        """Newest first, as CloudFormation tells them."""
        pages = self._clients.cloudformation.get_paginator("describe_stack_events")
        for page in pages.paginate(StackName=stack.id):
            yield from page["StackEvents"]
