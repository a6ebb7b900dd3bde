"""EC2's answer to which images there are: every one that is named, until it is lost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from lab.local.context import Context, Handler, Result
from lab.local.query import matches, page
from lab.local.wire import AwsError

AGE = timedelta(days=40)
"""Of every image: an instance here is a process and has none."""

_IMAGE_ID = re.compile(r"ami-(?:[0-9a-f]{8}|[0-9a-f]{17})")


def describe_images(context: Context) -> Result:
    """Images by ID, of which EC2 refuses all if one is missing, or by the filter `image-id`.

    Raises:
        AwsError: neither is given, and all images of the world are asked for.
    """
    context.require("ec2:DescribeImages")
    params, lost = context.params, context.cloud.lost_images
    by_id, filters = params.get("ImageIds"), params.get("Filters", [])
    filtered = [value for f in filters if f["Name"] == "image-id" for value in f.get("Values", [])]
    if not (by_id or filtered):
        raise AwsError(
            "UnsupportedOperation", "The local cloud shows images by ID, or by the filter image-id"
        )
    for image_id in by_id or []:
        if image_id in lost or not _IMAGE_ID.fullmatch(image_id):
            raise AwsError("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
    made = f"{context.cloud.now() - AGE:%Y-%m-%dT%H:%M:%S.000Z}"
    found = [
        {"ImageId": image_id, "State": "available", "CreationDate": made, "Public": True}
        for image_id in dict.fromkeys(by_id or filtered)
        if image_id not in lost and _IMAGE_ID.fullmatch(image_id)
    ]
    found = [one for one in found if matches(filters, {"image-id": partial(_id_of, one)})]
    shown, more = page(found, params)
    return {"Images": shown, **more}


def _id_of(image: Mapping[str, object]) -> list[str]:
    return [str(image["ImageId"])]


HANDLERS: dict[str, Handler] = {"DescribeImages": describe_images}
