"""A local cloud with EC2's own two minutes of warning, for the commands of people who look and decide."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from lab.demo.operator import Operator
from lab.local.environment import EC2_WARNING_S, REGION
from spotrelay.operator.cli.app import app
from tests import json_documents
from tests.e2e import deploying
from tests.e2e.deploying import Unhurried
from tests.e2e.faults.bench import Bench
from tests.e2e.stand import WITHIN_S


@pytest.fixture(scope="package")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The unmodified app with the demo's service."""
    settings = Unhurried(EC2_WARNING_S, tmp_path_factory.mktemp("operators"))
    with deploying.deployed(settings, tmp_path_factory.mktemp("scratch")) as operator:
        yield operator


@pytest.fixture
def demo(operator: Operator) -> Bench:
    """The demo's service, whole. What was warned may still be there: its two minutes are nobody's wait."""
    bench = Bench(operator, "demo")
    serving(bench)
    return bench


def serving(bench: Bench) -> None:
    """Wait until as many serve as should, and nobody is on the way."""
    bench.watch.until(
        lambda seen: sum(r.stays for r in seen.ready) == sum(r.state.is_active for r in seen.present) == 3,
        "three that serve and stay",
        WITHIN_S,
    )


@dataclass(frozen=True)
class Command:
    """`spotrelay`, as an operator of the local cloud runs it."""

    set_env: Callable[[str, str], None]

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        done = CliRunner().invoke(app, [*arguments, "--region", REGION], catch_exceptions=False)
        return done.exit_code, done.stdout, done.stderr

    def json(self, *arguments: str) -> Any:
        """What `--json` prints, as docs/json.md has it."""
        code, out, err = self(*arguments, "--json")
        assert code == 0, err
        document = json.loads(out)
        json_documents.check(arguments[0], document)
        return document

    def as_role(self, keys: Any) -> None:
        """From now on with these credentials."""
        self.set_env("AWS_ACCESS_KEY_ID", str(keys.access_key))
        self.set_env("AWS_SECRET_ACCESS_KEY", str(keys.secret_key))
        if keys.token:
            self.set_env("AWS_SESSION_TOKEN", str(keys.token))


@pytest.fixture
def spotrelay(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line, with the operator's role, on the local cloud."""
    command = Command(monkeypatch.setenv)
    monkeypatch.setenv("AWS_ENDPOINT_URL", operator.cloud.endpoint)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    command.as_role(operator.session.get_credentials())
    return command
