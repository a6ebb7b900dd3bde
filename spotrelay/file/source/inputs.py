"""What a file leaves open and whoever uses it says: values of envs and secrets, another name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spotrelay.file.source.errors import LONGEST_PATH, shortened

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"

MAX_ENV_FILE_BYTES = 262_144
"""As for a service file: more can't be meant, and a device has no end."""


class InputsError(ValueError):
    """An option can't be used: which, what was expected, what came."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is said beside the file."""

    envs: Mapping[str, str] = field(default_factory=dict)
    """They add to the file's, or replace them."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str | None = None
    """Instead of the file's."""
    directory: Path | None = None
    """Where the command that loads the file was run, if that isn't where it is at work."""


NOTHING = Inputs()


def inputs(
    env: Iterable[str] = (),
    env_file: Path | None = None,
    secret: Iterable[str] = (),
    name: str | None = None,
) -> Inputs:
    """From a command's options: `K=V`, or `K` for what the caller's environment has. `env` outranks the file.

    Raises:
        InputsError: one of them can't be used.
    """
    envs = _from_file(env_file) if env_file else {}
    return Inputs({**envs, **_pairs(env, "--env")}, _pairs(secret, "--secret"), name)


def _pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not re.fullmatch(_NAME, name):
            # The value may be a secret: only the name is shown.
            raise InputsError(f"{option}: expected NAME=VALUE, such as MODEL=my/model, got {name[:40]!r}")
        if not equals:
            if name not in os.environ:
                raise InputsError(f"{option} {shortened(name)}: has no value here: write {option} NAME=VALUE")
            value = os.environ[name]
        try:
            value.encode()
        except UnicodeEncodeError:  # how Python shows a byte of the command line that is no UTF-8
            raise InputsError(f"{option} {name}: its value isn't UTF-8") from None
        found[name] = value
    return found


def _from_file(path: Path) -> dict[str, str]:
    name = shortened(str(path), LONGEST_PATH)
    try:
        if not path.is_file():
            raise InputsError(f"--env-file: {name} is no file with NAME=VALUE lines")
        with path.open("rb") as file:
            content = file.read(MAX_ENV_FILE_BYTES + 1)
        if len(content) > MAX_ENV_FILE_BYTES:
            raise InputsError(f"--env-file: {path} is larger than {MAX_ENV_FILE_BYTES} bytes")
        lines = content.decode("utf-8-sig").splitlines()
    except OSError as error:
        raise InputsError(f"--env-file: {name} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputsError(f"--env-file: {path} isn't UTF-8") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(rf"\s*(?:export\s+)?({_NAME})\s*=\s*(.*?)\s*", line)
        if match is None:
            raise InputsError(f"--env-file: {path}:{number}: expected NAME=VALUE")
        found[match[1]] = _unquoted(match[2])
    return found


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return re.sub(r"(^|\s)#.*", "", text).rstrip()
