"""As much of the AWS CLI as an instance's scripts use. Run by path, from `commands/aws`.

Credentials come from the instance's metadata service, and the cloud's address from the environment: so what
the role of an instance may not do fails here, too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

REGION = "us-east-1"


def main(arguments: list[str]) -> int:
    """Carry out one command, with the CLI's exit codes."""
    service, command, *rest = arguments or ["", ""]
    parser = argparse.ArgumentParser(prog="aws")
    # Taken and not looked at: what they ask for is done in any case.
    parser.add_argument("--region", default=REGION)
    for flag in ("--only-show-errors", "--with-decryption"):
        parser.add_argument(flag, action="store_true")
    for option in ("--name", "--query", "--output", "--bucket", "--key"):
        parser.add_argument(option)
    parser.add_argument("paths", nargs="*")
    options = parser.parse_args(rest)
    try:
        match service, command:
            case "ssm", "get-parameter":
                client = boto3.client("ssm", region_name=options.region)
                found = client.get_parameter(Name=options.name, WithDecryption=True)
                sys.stdout.write(found["Parameter"]["Value"] + "\n")
            case "s3api", "head-object":
                _s3(options.region).head_object(Bucket=options.bucket, Key=options.key)
            case "s3", "cp":
                _copy(_s3(options.region), *options.paths)
            case "s3", "sync":
                _sync(_s3(options.region), *options.paths)
            case _:
                sys.stderr.write(f"the local cloud's aws knows no {service} {command}\n")
                return 252
    except (BotoCoreError, ClientError) as error:
        sys.stderr.write(f"{error}\n")
        return 254
    return 0


def _s3(region: str) -> Any:
    return boto3.client("s3", region_name=region)


def _split(url: str) -> tuple[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return bucket, key


def _copy(s3: Any, url: str, target: str) -> None:
    s3.download_file(*_split(url), target)


def _sync(s3: Any, url: str, target: str) -> None:
    bucket, prefix = _split(url)
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for found in page.get("Contents", []):
            file = Path(target, found["Key"].removeprefix(prefix))
            file.parent.mkdir(parents=True, exist_ok=True)
            s3.download_file(bucket, found["Key"], str(file))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
