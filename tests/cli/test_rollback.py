"""`spotrelay rollback`, as an operator meets it."""

from __future__ import annotations

import json
from dataclasses import replace

from typer.testing import CliRunner

from spotrelay.operator.cli.app import app
from spotrelay.plane.core.names import service_parameter
from spotrelay.plane.core.rows import Backoff, Changes, Rollback
from spotrelay.plane.core.spec import OnUpdate
from tests.cli.test_scale import REGION, Region, region
from tests.examples import demo_spec

__all__ = ["region"]

FIRST = demo_spec()
SECOND = replace(FIRST, version=2, port=9000, on_update=OnUpdate.ROLLING)


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, ["rollback", *arguments, "--region", REGION], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def deployed(region: Region) -> None:
    """Version 2 is deployed, and a tick has seen that."""
    value = json.dumps(SECOND.to_dict())
    region.ssm.put_parameter(Name=service_parameter("demo"), Value=value, Type="String", Overwrite=True)
    region.store.keep_document(SECOND, {1: FIRST})


def test_a_rollback_is_stored_shown_and_told(region: Region) -> None:
    """The version before is on record with its port, and a tick comes at once."""
    deployed(region)
    told = "demo: replicas get version 1 instead of 2, until another one is deployed\n"
    assert run("demo", "--yes") == (0, told, "")
    assert (
        region.store.load("demo").rollback == region.store.read("demo", ()).rollback == Rollback(2, 1, 8081)
    )
    assert region.told() == [{"service": "demo", "kind": "tick"}]


def test_it_asks_before(region: Region) -> None:
    """Anything but a yes, as without a terminal, leaves the deployed version in force."""
    deployed(region)
    code, out, _ = run("demo")
    assert code == 1
    assert "demo: go back from version 2 to 1? [y/N]" in out
    assert region.store.load("demo").rollback is None
    assert region.told() == []


def test_a_reset_tries_the_deployed_version_again(region: Region) -> None:
    """Nobody goes back any more, and that it failed is forgotten."""
    deployed(region)
    run("demo", "--yes")
    region.store.commit(Changes("demo", backoff=Backoff(2, version=2)))
    assert run("demo", "--reset") == (0, "demo: version 2 counts, as it is deployed\n", "")
    rows = region.store.load("demo")
    assert (rows.rollback, rows.backoff) == (None, Backoff())


def test_where_nothing_is_known_of_before_there_is_nothing_to_go_back_to(region: Region) -> None:
    """A service's first version, or one that isn't deployed: the error says what to do."""
    code, _, err = run("demo")
    assert (code, err) == (
        2,
        "spotrelay rollback: no version of demo before 1 is known: deploy an earlier service file\n",
    )
    assert "no service nobody is deployed in us-east-1" in run("nobody")[2]
    assert region.told() == []
