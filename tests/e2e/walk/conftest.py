"""An account in which nothing is but the CDK's bootstrap, and somebody who may deploy there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from lab.demo import deployment, environment
from lab.demo.deployment import Deployer
from lab.demo.operator import LocalSession
from lab.demo.processes import Processes
from lab.demo.settings import ROOT
from lab.local.environment import EC2_WARNING_S
from tests.documented import policy
from tests.e2e.deploying import Unhurried
from tests.e2e.operators.conftest import Command

DEPLOYER = "deployer"
"""The role's name."""

NO_TABLE = "SpotRelay-ControlPlane"
"""The page's policy names the table by a pattern."""


@pytest.fixture(scope="package")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A local cloud, bootstrapped by its administrator."""
    settings = Unhurried(EC2_WARNING_S, tmp_path_factory.mktemp("walk"))
    home = tmp_path_factory.mktemp("home")
    os.environ.setdefault("no_proxy", "127.0.0.1")
    deployment.clear(settings.out)
    processes = Processes(settings.logs, ROOT)
    env = environment.clean(os.environ)
    try:
        yield Deployer(settings, processes, env, home, lambda _: None, ()).bootstrapped()
    finally:
        processes.stop_all()


@pytest.fixture(scope="package")
def role(endpoint: str) -> str:
    """The ARN of a role that may do what docs/deploy.md says and nothing else."""
    iam = LocalSession(endpoint).client("iam")
    anybody = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    made = iam.create_role(RoleName=DEPLOYER, AssumeRolePolicyDocument=_document([anybody]))["Role"]
    iam.put_role_policy(
        RoleName=DEPLOYER, PolicyName="p", PolicyDocument=_document(policy("deploy.md", NO_TABLE))
    )
    return str(made["Arn"])


@pytest.fixture
def spotrelay(endpoint: str, role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, by that role; what it starts has its credentials, too."""
    sts = LocalSession(endpoint).client("sts")
    keys = sts.assume_role(RoleArn=role, RoleSessionName="walk")["Credentials"]
    for name, value in environment.for_cdk(environment.local(endpoint), tmp_path).items():
        monkeypatch.setenv(name, value)
    command = Command(monkeypatch.setenv)
    session = boto3.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])
    command.as_role(session.get_credentials())
    return command


def _document(statements: object) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})
