"""`python -m lab.local.drive`: does to a running local cloud what EC2 does to an account on a bad day."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from lab.local.client import LocalCloud, LocalCloudError

EXIT_REFUSED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command; 1 if the local cloud refuses it or isn't there."""
    options = _parser().parse_args(arguments)
    try:
        for line in _do(LocalCloud(options.endpoint_url), options):
            sys.stdout.write(f"{line}\n")
    except LocalCloudError as error:
        sys.stderr.write(f"lab.local.drive: {error}\n")
        return EXIT_REFUSED
    return 0


def _do(cloud: LocalCloud, options: argparse.Namespace) -> list[str]:
    match options.command:
        case "dry":
            warned = cloud.dry_up(options.zone, options.type, warn=not options.keep)
            return [f"no Spot capacity there any more; warned: {', '.join(warned) or 'none'}"]
        case "back":
            cloud.bring_back(options.zone, options.type)
            return ["Spot capacity is back"]
        case "warn":
            cloud.warn(options.instance)
            return [f"{options.instance} is warned"]
        case _:
            return [
                f"{i['instance_id']}  {i['state']:13}  {i['zone']}/{i['instance_type']}  {i['lifecycle']}"
                for i in cloud.instances()
            ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.local.drive", description=__doc__)
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "http://127.0.0.1:4566")
    parser.add_argument(
        "--endpoint-url", default=endpoint, help="of the local cloud (default: $AWS_ENDPOINT_URL)"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    dry = commands.add_parser("dry", help="take the Spot capacity from pools, and the instances in them")
    dry.add_argument("--keep", action="store_true", help="leave the instances that are there")
    back = commands.add_parser("back", help="give it back")
    for command in (dry, back):
        command.add_argument("--zone", help="only there")
        command.add_argument("--type", help="only this instance type")
    commands.add_parser("warn", help="take one instance back").add_argument("instance")
    commands.add_parser("instances", help="list them")
    return parser


if __name__ == "__main__":
    sys.exit(main())
