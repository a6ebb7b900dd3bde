"""What SpotRelay installs on an instance for scripts that rely on it: which, from where, and its checksum."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from spotrelay.file.model import Service


@dataclass(frozen=True, slots=True)
class Download:
    """A file that never changes; one that does isn't used."""

    url: str
    sha256: str


_PYPI = "https://files.pythonhosted.org/packages"
UV_VERSION = "0.13.8"

UV: Mapping[str, Download] = {
    "x86_64": Download(
        f"{_PYPI}/c5/32/52ee34636aea1ab3f8baeeae1c3599461b8cddfb379862cc72ac61b8d91c/uv-{UV_VERSION}-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984",
    ),
    "arm64": Download(
        f"{_PYPI}/9e/f0/d989ac5fcebf83f1c8c5d78974f27788e8364945969eb646f5d0db35d924/uv-{UV_VERSION}-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl",
        "0b3e8b1a4f5e405e31e2ff33de8af4744831e9f7338539671efbd8c3c94e791d",
    ),
}
"""The wheels that uv.lock has; a test holds the two together."""

_MINIFORGE = "https://github.com/conda-forge/miniforge/releases/download/24.3.0-0/Miniforge3-24.3.0-0-Linux"

CONDA: Mapping[str, Download] = {
    "x86_64": Download(
        f"{_MINIFORGE}-x86_64.sh", "23367676b610de826f50f7ddc91139a816d4b59bd4c69cc9b6082d9b2e7fe8a3"
    ),
    "arm64": Download(
        f"{_MINIFORGE}-aarch64.sh", "6c879fe354d3e26b8d960cff6b1f3cb9d2e58c79c5c07f23fff62469dc5c1480"
    ),
}
"""Miniforge: conda, with packages that everybody may use (Anaconda's own ask for a licence). This release has
Python 3.10, as SkyPilot's conda does: what its files install with pip is built for that."""

_MOUNTPOINT = "https://s3.amazonaws.com/mountpoint-s3-release/1.24.0"

MOUNTPOINT: Mapping[str, Download] = {
    "x86_64": Download(
        f"{_MOUNTPOINT}/x86_64/mount-s3-1.24.0-x86_64.tar.gz",
        "a99bea20510eaabaf9d7cbfe95ab221a11005cacaa77cfc311a2912bbbdbfd72",
    ),
    "arm64": Download(
        f"{_MOUNTPOINT}/arm64/mount-s3-1.24.0-arm64.tar.gz",
        "9f97026c9feabd0e4d128206f1846ee317e6c4f21846914dfe4268d110c892c4",
    ),
}
"""Mountpoint for S3."""

_AWS_CLI = "https://awscli.amazonaws.com/awscli-exe-linux"

AWS_CLI: Mapping[str, Download] = {
    "x86_64": Download(
        f"{_AWS_CLI}-x86_64-2.36.11.zip", "50fbb7a2f44a78eab4a210088040e8f0bc4b9937cac8043c2354269d58614df6"
    ),
    "arm64": Download(
        f"{_AWS_CLI}-aarch64-2.36.42.zip", "cf64084aafa091b68392ca585c87325c67137ab6d740f9d43f12c55f7fd6b297"
    ),
}
"""The AWS CLI, for images without. AWS publishes signatures and no checksums; these are from others who
verified a release, so the two are of different ones."""

VENV = "sky-user-env"
"""The environment in the home directory in which SkyPilot's scripts run since 0.14; conda is for who asks."""

VENV_PYTHON = "3.10"
"""What SkyPilot's images had when most of the files were written: packages that they pin aren't built for
later ones. A Python of uv's own has the headers with which kernels are compiled."""

# As a command, not as a part of a path, an option or a package's name: `--python 3.12`, `.venv/bin/pip`.
_COMMAND = r"(?<![\w./=-]){}(?![\w./=-])"
_CONDA = re.compile(_COMMAND.format("(?:conda|mamba)"))
# `uv pip` is uv's own.
_BASE_PYTHON = re.compile(r"(?<!uv )" + _COMMAND.format("(?:pip3?|python)"))
_UV = re.compile(_COMMAND.format("uvx?"))
_CONTINUED = re.compile(r"\\\n")
_SEPARATOR = re.compile(r"[;\n|&]")
_STANDARD = re.compile(
    r"(?:exec\s+|nohup\s+)?python3\s+-m\s+http\.server\b|(?:cd|echo|exit|export|mkdir|set|sleep|wait)\b|$"
)
"""Commands for which Ubuntu's own Python does, and those that are no program."""


def needs_uv(service: Service) -> bool:
    """Whether the scripts call uv, or run in an environment of its."""
    return _UV.search(_scripts(service)) is not None or needs_venv(service)


def needs_conda(service: Service) -> bool:
    """Whether the scripts call conda."""
    return _CONDA.search(_scripts(service)) is not None


def needs_venv(service: Service) -> bool:
    """Whether the scripts run in a Python environment that they may install into.

    Ubuntu's own Python is managed by its packages: pip refuses to install into it, and there is no `python`.
    A SkyServe file relies on SkyPilot's, whatever its words are: `bash install.sh` may call pip. conda brings
    its own, a container has its image's. A file in our words has one if it calls `pip` or `python` on our
    image.
    """
    if service.container is not None or needs_conda(service):
        return False
    scripts = _scripts(service)
    if service.is_skyserve:
        return not all(
            _STANDARD.match(command.strip()) for command in _SEPARATOR.split(_CONTINUED.sub(" ", scripts))
        )
    return service.image.reference.startswith("/aws/service/") and _BASE_PYTHON.search(scripts) is not None


def _scripts(service: Service) -> str:
    text = f"{service.setup or ''}\n{service.run}"
    return re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
