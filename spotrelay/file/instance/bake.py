"""Makes a machine's disk fit for an image, after set-up. An instance that bakes runs it, as `bake.py`.

    python3 -I bake.py /      what bake.json, beside it, names

It erases what tells machines apart, what was said, and what the service was given. Then it says on the
console that it is ready, again and again, until somebody stops the instance.

It has the standard library alone, of Python 3.9.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

BEGAN = ".bake-began"
"""Beside this file: made right before set-up."""

READY = "spotrelay-baked"
"""A line of the console that says nothing else: the disk is ready for its image."""

CONSOLE = Path("/dev/console")

TELL_S = 20.0
"""Between two such lines: what the kernel says may run into one of them."""

STORES = ("opt/dlami/nvme",)
"""Where AWS's images have what disappears with a stop: the instance's own store."""

CLOUD_INIT = "var/lib/cloud"
FINISHED = f"{CLOUD_INIT}/instance/boot-finished"
"""cloud-init makes it when it has done all that it does at a boot."""

FINISHED_WITHIN_S = 300.0
"""Of a set-up that is quicker than cloud-init. It comes after what a boot may wait for."""

MACHINE_ID = "etc/machine-id"

ERASED = (
    "etc/ssh/ssh_host_*",
    # What systemd makes anew where it is missing: https://systemd.io/BUILDING_IMAGES
    "var/lib/dbus/machine-id",
    "var/lib/systemd/credential.secret",
    "var/lib/systemd/random-seed",
    "root/.bash_history",
    "home/*/.bash_history",
)
"""By patterns below the root. cloud-init makes a new instance's SSH keys."""


class BakeError(Exception):
    """There is to be no image; says why, and what to do."""


def check(root: Path, began: float) -> None:
    """Whether all that set-up has made would be in an image. `began`: when set-up did, by the clock.

    Raises:
        BakeError: not all of it.
    """
    for path in _files(root, STORES):
        if path.lstat().st_ctime >= began:
            raise BakeError(
                f"set-up has made {path}, on the instance's own store, which no image has: let it write"
                " elsewhere, or name a model under models"
            )


def clean(root: Path, home: Path, plan: Mapping[str, Any]) -> None:
    """Erase what no other machine may have. `home`: where the service's scripts are.

    Raises:
        OSError: something can't be erased.
    """
    _wait(lambda: (root / FINISHED).exists() or not (root / CLOUD_INIT).is_dir())
    _leave_to_pack(home, plan["paths"])
    _forget_machine(root)
    for path in _files(root, ["var/log"]):
        path.unlink()
    # The service's variables, and its scripts, which a replica gets anew. What powers the instance off comes
    # last: until then whatever fails still ends it.
    written = [*(home / name for name in plan["home"]), *(root / name[1:] for name in plan["elsewhere"])]
    for path in sorted([*written, home / BEGAN, home / "bake.json"], key=lambda one: one.name == "crash.sh"):
        _erase(path)
    os.sync()


def _leave_to_pack(home: Path, paths: Sequence[str]) -> None:
    """Without what a replica has from a pack, for which its set-up must ask."""
    for path in paths:
        _remove(Path(path))
    for mark in home.glob(".setup-done-*") if paths else ():
        mark.unlink()


def _forget_machine(root: Path) -> None:
    """Without what tells it from others, what it was given at its boot, and what people typed."""
    for path in (one for name in ERASED for one in root.glob(name)):
        _erase(path)
    for path in (root / CLOUD_INIT).glob("*"):
        if path.name == "seed":  # as cloud-init's own `clean` leaves it: the image's, not the machine's
            continue
        for file in _files(path, ["."]):
            _erase(file)
        _remove(path)
    # Empty, not missing: systemd would take a boot without the file for the machine's first, and set up
    # anew which units are enabled.
    if (root / MACHINE_ID).exists():
        (root / MACHINE_ID).write_text("", encoding="utf-8")


def _files(root: Path, names: Sequence[str]) -> Iterator[Path]:
    """The files below these directories; links are no files."""
    for name in names:
        for at, _, files in os.walk(root / name):
            yield from (path for path in (Path(at, one) for one in files) if not path.is_symlink())


def _erase(path: Path) -> None:
    """Delete a file, and overwrite it before: a snapshot has the blocks of what was deleted, too."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_file() and not path.is_symlink():
            with path.open("r+b") as file:
                file.write(bytes(path.stat().st_size))
                file.flush()
                os.fsync(file.fileno())
        path.unlink()


def _remove(path: Path) -> None:
    """Delete whatever it is."""
    if path.is_symlink() or not path.is_dir():
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    else:
        shutil.rmtree(path)


def _wait(is_over: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + FINISHED_WITHIN_S
    while not is_over() and time.monotonic() < ends_at:
        time.sleep(1)


def tell(words: str) -> None:
    """A line on the console: the journal has been erased."""
    with contextlib.suppress(OSError), CONSOLE.open("a", encoding="utf-8") as console:
        console.write(f"\n{words}\n")


def main() -> int:
    """Do what the plan says, and wait to be stopped."""
    root, home = Path(sys.argv[1]), Path(__file__).parent
    try:
        plan = json.loads((home / "bake.json").read_text(encoding="utf-8"))
        check(root, (home / BEGAN).stat().st_mtime)
        clean(root, home, plan)
    except (BakeError, OSError) as error:
        tell(f"spotrelay: nothing is baked: {error}")
        return 1
    while True:
        tell(READY)
        time.sleep(TELL_S)


if __name__ == "__main__":
    sys.exit(main())
