"""The functions' code, assembled from the locked environment: no Docker, no network, no installer.

The asset holds lambdas/, spotrelay/plane/, and the packages that they need, all in pure Python: one asset
runs on Lambda and on this machine, where the local cloud runs it.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Set
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from aws_cdk import aws_lambda as lambda_

ROOT = Path(__file__).resolve().parent.parent
OWN_PACKAGE = "spotrelay"
ROOMS = ("lambdas", "spotrelay/plane")
NOT_RUN = frozenset({PurePosixPath("spotrelay/plane/memory.py")})
"""The ports in memory are for simulation and tests."""

FUNCTIONS = "functions"
"""The dependency group, in pyproject.toml, of what they need."""

PROVIDED = frozenset({"boto3"})
"""In Lambda's runtime already, with all that it needs: 20 MB that every cold start would have to unpack, and
compiled there, as nothing in an asset is."""

COMPILED = frozenset({".so", ".pyd", ".dylib", ".dll"})

KEPT_METADATA = frozenset({"METADATA", "LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE"})
"""Of a package's .dist-info: its licence and its version. The rest differs between machines."""


class BundlingError(Exception):
    """The asset can't be made from what is installed; the message says what to do."""


def functions_code() -> lambda_.Code:
    """The asset, to define functions with.

    Raises: as `stage` does.
    """
    return lambda_.Code.from_asset(_staged())


@cache
def _staged() -> str:
    """A directory that has the asset until the process ends: made once, and hashed by the CDK once."""
    directory = tempfile.mkdtemp(prefix="spotrelay-asset-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    stage(Path(directory))
    return directory


def stage(target: Path) -> None:
    """Fill `target` with everything that the functions need.

    Raises:
        BundlingError: a package isn't installed as locked, or isn't pure Python.
    """
    for module in own_modules(ROOT):
        _copy(ROOT / module, target / module)
    for name in locked_packages(ROOT / "uv.lock"):
        for source, place in _files_of(name):
            _copy(source, target / place)


def own_modules(root: Path) -> Iterator[PurePosixPath]:
    """The files of lambdas/ and of the plane, with the package around it."""
    yield PurePosixPath(OWN_PACKAGE, "__init__.py")
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            module = PurePosixPath(path.relative_to(root))
            if module not in NOT_RUN:
                yield module


def locked_packages(lock: Path) -> list[str]:
    """The packages that the functions need beyond what Lambda provides, each installed as locked.

    Raises:
        BundlingError: one of them isn't.
    """
    packages: Mapping[str, Mapping[str, Any]] = {
        package["name"]: package for package in tomllib.loads(lock.read_text(encoding="utf-8"))["package"]
    }
    functions = {needed["name"] for needed in packages[OWN_PACKAGE]["dev-dependencies"][FUNCTIONS]}
    needed = sorted(_with_dependencies(packages, functions) - _with_dependencies(packages, PROVIDED))
    for name in needed:
        _check_version(name, packages[name]["version"])
    return needed


def _with_dependencies(packages: Mapping[str, Mapping[str, Any]], names: Set[str]) -> set[str]:
    """The packages and all that they need."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [needed["name"] for needed in packages.get(name, {}).get("dependencies", ())]
    return found


def _check_version(name: str, locked: str) -> None:
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        installed = "missing"
    if installed != locked:
        raise BundlingError(f"{name} is {installed} here, uv.lock says {locked}: run `make setup`")


def _files_of(name: str) -> Iterator[tuple[Path, PurePosixPath]]:
    """What of an installed package goes into the asset: where it is, and where it belongs."""
    for file in metadata.distribution(name).files or ():
        place = PurePosixPath(*file.parts)
        if ".." in place.parts or "__pycache__" in place.parts or place.suffix == ".pyc":
            continue
        if place.suffix in COMPILED:
            raise BundlingError(
                f"{name} has compiled code ({place}), which can't suit both Lambda and this machine:"
                " use a pure-Python package"
            )
        if "tests" in place.parts or (".dist-info" in place.parts[0] and place.name not in KEPT_METADATA):
            continue
        yield Path(str(file.locate())), place


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
