"""`spotrelay validate`, as an operator meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spotrelay.aws.quotas import Quotas
from spotrelay.cli.app import app
from spotrelay.core.ports import Denied
from spotrelay.core.quotas import Quota

from .conftest import GOOD

ROOT = Path(__file__).parents[2]


def run(*files: Path) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, ["validate", *map(str, files)], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_right_files_are_described_and_exit_0() -> None:
    """Both service files of the repository validate, with a table for each."""
    code, out, err = run(ROOT / "services" / "demo.yaml", ROOT / "services" / "llama3.yaml")
    assert (code, err) == (0, "")
    assert "22 in each zone" in out
    assert "11 in each zone" in out
    assert "POST /v1/chat/completions" in out


def test_problems_of_all_files_go_to_standard_error_one_per_line_and_exit_2(tmp_path: Path) -> None:
    """Every wrong file is reported, right ones are still described, and the exit code says not to deploy."""
    good, bad = tmp_path / "good.yaml", tmp_path / "a-directory-with-a-rather-long-name" / "bad.yaml"
    bad.parent.mkdir()
    good.write_text(GOOD, encoding="utf-8")
    bad.write_text(GOOD.replace("replicas: 2", "replicas: -1").replace("8081", "0"), encoding="utf-8")
    code, out, err = run(bad, good, tmp_path / "none.yaml")
    assert code == 2
    assert "good" in out
    assert err.splitlines() == [
        f"{bad}:2:3: service.replicas: expected a whole number from 0 to 1000, got -1",
        f"{bad}:6:3: resources.ports: expected a port from 1 to 65535, such as 8080, got 0",
        f"{tmp_path / 'none.yaml'}: no such file",
    ]


def test_warnings_are_shown_and_exit_0(tmp_path: Path) -> None:
    """What is allowed and probably not meant is said, and is no failure."""
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD.replace("{A10G, L4, L40S}", "T4"), encoding="utf-8")
    code, _, err = run(file)
    assert code == 0
    assert err.startswith(f"warning: {file}:5:3: resources.accelerators: only 5 instance types are eligible")


def test_markup_in_a_file_is_shown_as_it_stands(tmp_path: Path) -> None:
    """Square brackets in a value are not taken for the terminal's colours."""
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD.replace("8081", "'[red]x[/red]'"), encoding="utf-8")
    assert "got '[red]x[/red]'" in run(file)[2]


def test_python_dash_m_spotrelay_is_the_same_command() -> None:
    """`python -m spotrelay validate` works without the console script, on a pipe, without a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "spotrelay", "validate", "nonesuch.yaml"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "nonesuch.yaml: no such file\n")


@pytest.mark.parametrize("missing", ["typer", "rich", "pydantic", "ruamel.yaml"])
def test_a_missing_package_names_the_group_to_install(missing: str) -> None:
    """Without the operator's packages the command says in one line what to run."""
    code = f"import sys; sys.modules[{missing!r}] = None; from spotrelay.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    package = missing.partition(".")[0]
    assert done.stderr == f"spotrelay: {package} is not installed: run `uv sync --group operator`\n"


@pytest.mark.parametrize(
    ("spot", "on_demand", "code"), [(0, 0, 2), (1000, 0, 2), (1000, 1000, 0), (None, None, 1)]
)
def test_an_accounts_quotas(
    monkeypatch: pytest.MonkeyPatch, spot: float | None, on_demand: float | None, code: int
) -> None:
    """A quota that is too small is said by name, code, value, need and place; an account may not say."""
    values = {"L-3819A6DF": spot, "L-DB2E81BA": on_demand, "L-B99A9384": 10}

    def value_of(_: Quotas, quota: Quota) -> float:
        value = values[quota.code]
        if value is None:
            raise Denied("AccessDeniedException: no")
        return value

    monkeypatch.setattr(Quotas, "value", value_of)
    file = ROOT / "services" / "llama3.yaml"
    arguments = ["validate", "--account", "--region", "us-east-1", str(file)]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == code
    lines = result.stderr.splitlines()
    short = [c for c, value in values.items() if value == 0]
    if code == 1:
        assert "servicequotas:GetServiceQuota" in lines[-1]
    else:
        assert lines.pop(0).startswith("warning: Lambda, us-east-1: Concurrent executions (L-B99A9384) is 10")
        assert len(lines) == len(short)
    for quota_code, line in zip(short, lines, strict=False):
        assert line.startswith(str(file))
        assert f"({quota_code}) is 0 vCPU" in line
        assert f"us-east-1.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{quota_code}" in line
