"""Arguments and options that several commands have: one grammar for all of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from spotrelay.plane.aws.clients import Session

ServiceName = Annotated[str, typer.Argument(help="The service.", metavar="NAME", show_default=False)]

_CONFIGURED = "by default that of your AWS configuration"

Region = Annotated[
    str | None,
    typer.Option("--region", help=f"AWS region, {_CONFIGURED}.", metavar="R", show_default=False),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", help=f"AWS profile, {_CONFIGURED}.", metavar="P", show_default=False),
]
EndpointUrl = Annotated[
    str | None,
    typer.Option(
        "--endpoint-url",
        help="Send requests there instead of to AWS, for instance to a local cloud.",
        metavar="URL",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Timeout = Annotated[
    str,
    typer.Option(
        "--timeout", help="How long to wait: 90m, 2h or 1d. What has begun goes on.", metavar="TIME"
    ),
]
Contexts = Annotated[
    list[str] | None,
    typer.Option(
        "-c",
        "--context",
        help="A setting of the deployment, a CDK context value; overrides cdk.json.",
        metavar="K=V",
        show_default=False,
    ),
]
Confirmed = Annotated[bool, typer.Option("--yes", help="Don't ask for confirmation.")]


@dataclass(frozen=True, slots=True)
class Where:
    """Which account, region and endpoint a command asks."""

    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None

    def session(self) -> Session:
        """A session with these.

        Raises:
            BotoCoreError: there is no such profile, or the configuration is broken.
        """
        from spotrelay.plane.aws.clients import Session

        if self.endpoint_url:
            # botocore takes it for each client apart, or for all of them from here.
            os.environ["AWS_ENDPOINT_URL"] = self.endpoint_url
        # The AWS CLI, the CDK and AWS's own shells know AWS_REGION; botocore doesn't.
        return Session(self.region or os.environ.get("AWS_REGION"), self.profile)
