"""An account in which nothing is but the CDK's bootstrap, and somebody who may deploy there."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from lab.demo import environment
from lab.demo.operator import LocalSession
from lab.demo.processes import Processes
from lab.demo.settings import ACCOUNT, REGION, ROOT
from tests.documented import policy
from tests.e2e.operators.conftest import Command

WITHIN_S = 180.0
"""For what takes seconds, on machines that are busy otherwise."""

NO_TABLE = "SpotRelay-ControlPlane"
"""The page's policy names the table by a pattern."""


@pytest.fixture(scope="package")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A local cloud, bootstrapped by its administrator."""
    directory = tmp_path_factory.mktemp("walk")
    os.environ.setdefault("no_proxy", "127.0.0.1")
    processes = Processes(directory, ROOT)
    home, ready = directory / "home", directory / "ready.json"
    home.mkdir()
    env = environment.clean(os.environ)
    try:
        processes.start(
            "local-cloud",
            [
                sys.executable, "-m", "lab.local", "--port", "0", "--ready-file", ready,
                "--schedule-s", "6", "--boot-s", "0.5", "--instance-logs", directory / "instances",
            ],
            env,
        )  # fmt: skip
        deadline = time.monotonic() + WITHIN_S
        while not ready.exists():
            assert time.monotonic() < deadline, "the local cloud didn't start"
            time.sleep(0.1)
        found = str(json.loads(ready.read_text(encoding="utf-8"))["endpoint"])
        for_cdk = environment.for_cdk({**env, **environment.local(found)}, home)
        command: list[str | Path] = [environment.cdk_command(), "bootstrap", f"aws://{ACCOUNT}/{REGION}"]
        processes.finish(processes.start("bootstrap", command, for_cdk, cwd=home), "cdk bootstrap", WITHIN_S)
        yield found
    finally:
        processes.stop_all()


@pytest.fixture
def spotrelay(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, by a role that may do what docs/deploy.md says and nothing else."""
    administrator = LocalSession(endpoint)
    iam, sts = administrator.client("iam"), administrator.client("sts")
    anybody = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    role = iam.create_role(RoleName="deployer", AssumeRolePolicyDocument=_document([anybody]))["Role"]
    iam.put_role_policy(
        RoleName="deployer", PolicyName="p", PolicyDocument=_document(policy("deploy.md", NO_TABLE))
    )
    keys = sts.assume_role(RoleArn=role["Arn"], RoleSessionName="walk")["Credentials"]
    for name, value in environment.for_cdk(environment.local(endpoint), tmp_path).items():
        monkeypatch.setenv(name, value)
    command = Command(monkeypatch.setenv)
    session = boto3.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])
    command.as_role(session.get_credentials())
    return command


def _document(statements: object) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})
