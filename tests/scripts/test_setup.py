"""The set-up's words and stamps; that it works as a whole is proven by every `make test` in a fresh clone."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _script(name: str) -> ModuleType:
    """A script as a module: scripts/ is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def environment() -> ModuleType:
    """scripts/environment.py."""
    return _script("environment")


def test_an_old_python_can_read_the_first_script() -> None:
    """Python 3.6 gets as far as our own message, and not into a syntax error."""
    ast.parse((ROOT / "scripts" / "setup.py").read_text(encoding="utf-8"), feature_version=(3, 6))


def test_an_old_python_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with the version found and the remedy, if no newer Python is on PATH."""
    setup = _script("setup")
    monkeypatch.setattr(sys, "version_info", (3, 8, 18))
    monkeypatch.setenv("PATH", "/nowhere")
    assert setup.main() == 1
    message = capsys.readouterr().err
    assert "is Python 3.8.18, too old: install Python >= 3.11" in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    "said",
    [
        "WARNING: Retrying … after connection broken by 'NewConnectionError(…)': /simple/uv/",
        "ERROR: No matching distribution found for uv==0.13.8",
        "  Caused by: dns error",
        "npm error code ENOTFOUND",
        "error: operation timed out",
    ],
)
def test_a_missing_network_is_recognised(environment: ModuleType, said: str) -> None:
    """What pip, uv and npm say without a network becomes one sentence with a remedy."""
    assert environment.explain(["something before", said, ""]) == (
        "no connection to the package index. Check network and proxy settings, then run make again"
    )


def test_another_failure_is_passed_on(environment: ModuleType) -> None:
    """Anything else is told in the installer's words, without npm's hint at its log."""
    said = [
        "npm error code EINTEGRITY",
        "npm error sha512-dNs+ differs",
        "npm error A complete log is in: /x",
    ]
    assert environment.explain(said).startswith("npm error sha512-dNs+ differs. Run make again")


def test_a_stamp_fits_only_what_it_was_made_from(environment: ModuleType, tmp_path: Path) -> None:
    """A lock file that changes makes the set-up run again; one that doesn't, doesn't."""
    lock, stamp = tmp_path / "uv.lock", tmp_path / "stamp"
    lock.write_text("one", encoding="utf-8")
    before = environment.fingerprint(lock)
    assert not environment.is_current(stamp, before)
    stamp.write_text(before, encoding="ascii")
    assert environment.is_current(stamp, environment.fingerprint(lock))
    lock.write_text("two", encoding="utf-8")
    assert not environment.is_current(stamp, environment.fingerprint(lock))


def test_what_the_machine_lacks_is_said_up_front(
    environment: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """One line names every command that isn't here, and where all are here there is none."""
    for name in ("bash", "gzip", "tar"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    environment.warn_of_missing()
    said = capsys.readouterr().out
    assert said.startswith("set-up: there is no sha256sum and no xargs here. ")
    assert said.count("\n") == 1
    for name in ("sha256sum", "xargs"):
        (tmp_path / name).touch(0o755)
    environment.warn_of_missing()
    assert capsys.readouterr().out == ""
