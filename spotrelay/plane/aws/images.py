"""What launch templates name as their image, and whether it is still there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated

AVAILABLE = "available"
"""The only state of an image that anything is launched from."""


def of_versions(clients: Clients, template_id: str, versions: Collection[int]) -> Mapping[int, str]:
    """By version, the image's ID. One that somebody deleted is missing.

    Raises:
        PortError: EC2 can't be asked.
    """
    # By number EC2 refuses to show any if one is missing.
    with translated():
        pages = clients.ec2_surveying.get_paginator("describe_launch_template_versions").paginate(
            LaunchTemplateId=template_id, MinVersion=str(min(versions)), MaxVersion=str(max(versions))
        )
        found = [version for page in pages for version in page["LaunchTemplateVersions"]]
    return {
        version["VersionNumber"]: version["LaunchTemplateData"].get("ImageId", "")
        for version in found
        if version["VersionNumber"] in versions
    }


def made_at(clients: Clients, image_ids: Collection[str]) -> Mapping[str, datetime]:
    """When each image was made. One that is missing can't be launched from, by this account.

    Raises:
        PortError: EC2 can't be asked.
    """
    # By ID EC2 refuses to show any if one is missing. A deprecated one, as AWS's own become in time, is still
    # launched from, and shown only if it is asked for.
    with translated():
        pages = clients.ec2_surveying.get_paginator("describe_images").paginate(
            Filters=[{"Name": "image-id", "Values": sorted(image_ids)}], IncludeDeprecated=True
        )
        found = [image for page in pages for image in page["Images"]]
    return {
        image["ImageId"]: datetime.fromisoformat(image["CreationDate"])
        for image in found
        if image["State"] == AVAILABLE
    }
