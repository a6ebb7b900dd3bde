"""The environment that the demo's children run in: the local cloud is their AWS, and they have no other.

Whatever the user has for a real account (profiles, keys, regions, endpoints) is taken out: nothing of it may
be used by mistake, and nothing of it may be in the way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from lab.demo.settings import REGION, ROOT

_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})
"""Everything here is on loopback, which no proxy reaches."""

OPERATOR_KEY = "test"
"""The one key, and its own secret, that is the local cloud's operator: any other must be created there."""

_FOREIGN = ("AWS_", "CDK_", "JSII_", "SPOTRELAY_")


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without anything that says which AWS, or how to reach it; our Python and CDK first."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(_FOREIGN) and name.upper() not in _PROXIES
    }
    # MAKEFLAGS and the like are for make's own children.
    kept = {name: value for name, value in kept.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    kept["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), kept.get("PATH", os.defpath)))
    kept["PYTHONUNBUFFERED"] = "1"  # logs are read while they are written
    # Where somebody forbids it, each replica that starts compiles every module that it imports.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept


def local(endpoint: str) -> dict[str, str]:
    """What makes the local cloud at `endpoint` a process's AWS."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": OPERATOR_KEY,
        "AWS_SECRET_ACCESS_KEY": OPERATOR_KEY,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def for_cdk(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """For CDK commands that talk to AWS.

    The CDK remembers in its home which account a key belongs to: a home of its own, so that what it learns of
    the local cloud's key is forgotten with the local cloud, and the user's own notes stay as they are.
    """
    return {
        **environment,
        "HOME": str(home),
        "CDK_HOME": str(home),
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "CI": "true",  # no questions, no colours, progress to standard output
    }


def cdk_command() -> Path:
    """The pinned CDK command line, which set-up has put beside Python."""
    return ROOT / ".venv" / "bin" / "cdk"
