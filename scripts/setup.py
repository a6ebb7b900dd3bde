"""Finds a Python that is new enough and lets it prepare the working copy: `python3 scripts/setup.py`.

Whatever `python3` a machine has runs this file, so it keeps to what Python 3.6 reads; environment.py works.
"""

import os
import shutil
import subprocess
import sys

OLDEST = (3, 11)
NEWER_NAMES = ("python3.14", "python3.13", "python3.12", "python3.11")
REMEDY = "install Python >= 3.11, or name one: make PYTHON=/path/to/python3.12 ..."


def is_new_enough(command: str) -> bool:
    """Whether `command` runs and is a Python we support: a version manager's shim may exist and not run."""
    check = f"import sys; sys.exit(sys.version_info < {OLDEST})"
    return subprocess.call([command, "-c", check], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0


def main() -> int:
    """Prepare the working copy with this Python, or start again with a newer one."""
    if sys.version_info >= OLDEST:
        import environment  # an older Python can't read it

        return environment.main()
    for name in NEWER_NAMES:
        command = shutil.which(name)
        if command and is_new_enough(command):
            os.execv(command, [command, *sys.argv])  # noqa: S606  # no shell needed
    found = ".".join(map(str, sys.version_info[:3]))
    print(f"set-up: {sys.executable} is Python {found}, too old: {REMEDY}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
