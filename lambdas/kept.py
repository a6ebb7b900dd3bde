"""Says what a deployment of a service keeps: its image, and its version.

CloudFormation calls it for the custom resources of `stacks.kept`, and gets an answer whatever happens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import ClientError

from lambdas.answering import answer
from spotrelay.plane.core.names import IMAGE_RESOURCE, service_parameter

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ssm import SSMClient

VERSION_NOT_FOUND = "InvalidLaunchTemplateId.VersionNotFound"
"""Somebody deleted a version, or EC2 doesn't show one yet that was made a moment ago."""


def image(event: Mapping[str, Any]) -> str:
    """The image that the resource was made with: a later one counts only where it is asked for.

    It is the resource's physical ID, so CloudFormation keeps it: through deployments, and through those that
    it takes back.
    """
    if event["RequestType"] == "Create":
        return str(event["ResourceProperties"]["Newest"])
    return str(event["PhysicalResourceId"])


def version(service: str, template_id: str, latest: str, ec2: EC2Client, ssm: SSMClient) -> str:
    """The launch template's version to deploy: the one that is deployed if the latest says the same.

    A deployment that CloudFormation takes back leaves two versions behind: the one that it tried, and another
    with what had been before. Source:
    https://github.com/aws-cloudformation/cloudformation-coverage-roadmap/issues/1912
    """
    found = ssm.get_parameters(Names=[service_parameter(service)])["Parameters"]
    document = json.loads(found[0]["Value"]) if found else {}
    deployed = str(document.get("version"))
    # The numbers of another launch template count something else.
    if document.get("launch_template_id") != template_id or deployed == latest:
        return latest
    try:
        answered = ec2.describe_launch_template_versions(
            LaunchTemplateId=template_id, Versions=[deployed, latest]
        )
    except ClientError as error:
        if error.response["Error"]["Code"] == VERSION_NOT_FOUND:
            return latest
        raise
    data = {v["VersionNumber"]: v["LaunchTemplateData"] for v in answered["LaunchTemplateVersions"]}
    return deployed if data[int(deployed)] == data[int(latest)] else latest


def handler(event: dict[str, Any], context: LambdaContext) -> None:  # noqa: ARG001 - Lambda's
    """Answer CloudFormation."""
    asked, is_over = event["ResourceProperties"], event["RequestType"] == "Delete"
    if event["ResourceType"] == IMAGE_RESOURCE:
        kept = image(event)
        answer(event, kept, data={"ImageId": asked["Asked"] or kept})
        return
    service = asked["Service"]
    reason, data = "", dict[str, str]()
    try:
        if not is_over:
            clients = boto3.client("ec2"), boto3.client("ssm")
            data["Version"] = version(service, asked["LaunchTemplateId"], asked["Latest"], *clients)
    except Exception as error:  # noqa: BLE001 - without an answer CloudFormation would wait for its time-out
        reason = (
            f"Nobody knows whether {service} gets a new version: {error!r}. Nothing of it is deployed: deploy"
            " the service again."
        )
    answer(event, f"version-of-{service}", reason, data)
