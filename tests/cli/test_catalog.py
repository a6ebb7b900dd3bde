"""`spotrelay catalog`, as an operator meets it."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from spotrelay.file.catalog import accelerator_names, all_types
from spotrelay.operator.cli.app import app


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, ("catalog", *arguments), catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_every_accelerator_has_its_line() -> None:
    """What the hardware lacks is told from what nobody could confirm."""
    code, out, err = run()
    assert (code, err) == (0, "")
    lines = {line.split("  ")[0]: line.split() for line in out.splitlines()}
    assert set(accelerator_names()) <= lines.keys()
    assert lines["T4"][3:] == ["320", "-", "65", "-", "none", "g4dn"]
    assert lines["RTX-PRO-4500"][3:] == ["32.0", "?", "?", "?", "?", "?", "g7"]
    assert "Instance types as of 2026-" in out


def test_one_is_shown_with_its_sources_and_types() -> None:
    """However its name is written."""
    code, out, _ = run("--gpu", "l4")
    assert code == 0
    assert "memory bandwidth, GB/s  300" in out
    assert "[1] https://www.nvidia.com/en-us/data-center/l4/, checked 2026-" in out
    (line,) = [line for line in out.splitlines() if line.startswith("g6.2xlarge ")]
    assert line.split()[1:9] == ["1", "22.4", "8", "32", "450", "5-10", "-", "250-625"]


def test_as_json_every_value_stands_with_its_source() -> None:
    """And every type with what EC2 says, and where it is offered."""
    told = json.loads(run("--json")[1])
    found = {row["name"]: row for row in told["accelerators"]}
    assert (
        found["L4"]["tflops_dense"]["fp8"]["source"]["url"] == "https://www.nvidia.com/en-us/data-center/l4/"
    )
    assert found["L4"]["tflops_dense"]["fp8"]["source"]["date"].startswith("2026-")
    types = [row for chip in told["accelerators"] for row in chip["instance_types"]]
    assert {row["name"] for row in types} == {type_.name for type_ in all_types() if type_.accelerator}
    assert all(row["zones"] for row in types)


def test_an_unknown_gpu_is_told_with_the_nearest() -> None:
    """Exit code 2."""
    code, out, err = run("--gpu", "L40")
    assert (code, out) == (2, "")
    assert err.startswith(
        "spotrelay catalog: --gpu: no accelerator is called 'L40' (did you mean L40S?): there are A100,"
    )
