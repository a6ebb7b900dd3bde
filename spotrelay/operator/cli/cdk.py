"""Runs the CDK's command line, which set-up has put beside Python, and reads how far it is."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import spotrelay
from spotrelay.file.instance.packs import DEFAULT_QUALIFIER
from spotrelay.operator.cli.errors import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_NO_ACCESS, CommandError
from spotrelay.operator.cli.telling import Teller
from spotrelay.operator.deploy.stack_remedies import remedy
from spotrelay.operator.look.denied import action_in

ROOT = Path(spotrelay.__file__).resolve().parents[1]
"""The working copy, if this is one: a wheel has no CDK app."""

COMMAND = Path(sys.executable).parent / "cdk"
"""Where set-up puts it."""

LOOK_S = 0.5
"""Between looks at the clock while the CDK says nothing."""

STOP_WITHIN_S = 10.0

_EVENT = re.compile(r"(?P<stack>\S+) \| +(?P<done>\d+)(?:/(?P<of>\d+))? \| [^|]+ \| (?P<status>[A-Z_]+) +\| ")
"""A line of `--progress events`."""

_ENDED = re.compile(r"✅ +(?P<stack>\S+?)(?P<unchanged> \(no changes\))?$")

_FAILED = re.compile(r"❌ .*|.*(?:_FAILED +\||failed:| failed to deploy).*|.*[Ee]rror: .*")

_USAGE = "exited with error 2"
"""How the CDK says that the app couldn't use what it was given: see app.py."""

_NOISE = ("node:", "    at ", "Subprocess", "feature flags", "cdk flags")


def must_be_here(command: str) -> None:
    """Let only a clone that has been set up go on: it has the CDK app, and the CDK.

    Raises:
        CommandError: this is none.
    """
    if not (ROOT / "cdk.json").exists():
        raise CommandError(
            "deploying needs a clone of SpotRelay, and this installation has none: in a clone, run make"
            f" setup, and then .venv/bin/spotrelay {command}"
        )
    if not COMMAND.exists():
        raise CommandError(f"{COMMAND} is missing: run make setup in {ROOT}")


class Cdk:
    """The CDK's command line in a working copy, with an account's credentials."""

    def __init__(self, region: str, profile: str | None, home: Path, teller: Teller, deadline: float) -> None:
        """`home`: an empty directory. `deadline`: on the clock of `time.monotonic`, when it is given up."""
        self._command = COMMAND
        self._profile = profile
        self._region = region
        self._env = environment(os.environ, region, home)
        self._teller = teller
        self._deadline = deadline

    def synth(self, context: Mapping[str, str], into: Path) -> None:
        """Make the templates, of the app with this context; cdk.json has the rest.

        Raises:
            CommandError: the settings or the service files can't be used, or the CDK fails.
        """
        said = [word for name, value in context.items() for word in ("--context", f"{name}={value}")]
        lines: list[str] = []
        code = self._run(["synth", "--quiet", "--output", str(into), *said], lines.append)
        if code:
            is_usage = any(_USAGE in line for line in lines)
            words = [line for line in lines if line.strip() and not any(n in line for n in _NOISE)]
            if is_usage and words:
                raise CommandError("\n".join(words), EXIT_BAD_INPUT)
            raise CommandError(f"cdk synth failed: {_last(words)}", EXIT_FAILED)

    def deploy(
        self, assembly: Path, stacks: Sequence[str], parameters: Mapping[str, str] | None = None
    ) -> None:
        """Deploy these stacks of it, and no others.

        `parameters`: STACK:NAME → value; every other one keeps the value that it has.

        Raises:
            CommandError: one couldn't be deployed, with CloudFormation's words and what to do about them.
        """
        lines: list[str] = []

        def told(line: str) -> None:
            lines.append(line)
            self._tell(line)

        arguments = [
            "deploy", *stacks, "--exclusively", "--app", str(assembly), "--method", "direct",
            "--concurrency", "2", "--require-approval", "never", "--progress", "events",
        ]  # fmt: skip
        arguments += [
            w for name, value in (parameters or {}).items() for w in ("--parameters", f"{name}={value}")
        ]
        if self._run(arguments, told):
            words = why(lines)
            if refused := refusal(words):
                raise CommandError(f"{refused}. The CDK says: {words}", EXIT_NO_ACCESS)
            what_to_do = remedy(words, self._region)
            raise CommandError(
                "\n".join(filter(None, (f"cdk deploy failed: {words}", what_to_do))), EXIT_FAILED
            )

    def _tell(self, line: str) -> None:
        if ended := _ENDED.match(line):
            self._teller.say(f"{ended['stack']}: {'as it was' if ended['unchanged'] else 'deployed'}")
        elif event := _EVENT.match(line):
            of = f" of {event['of']}" if event["of"] else ""
            self._teller.now(f"{event['stack']}: {event['done']}{of} resources")

    def _run(self, arguments: Sequence[str], told: Any) -> int:
        command = [str(self._command), *arguments, *(["--profile", self._profile] if self._profile else [])]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._env,
            cwd=ROOT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        try:
            for line in self._lines(process):
                told(line)
            return process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(STOP_WITHIN_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _lines(self, process: subprocess.Popen[str]) -> Iterator[str]:
        found: queue.SimpleQueue[str | None] = queue.SimpleQueue()

        def read() -> None:
            for line in process.stdout or ():
                found.put(line.rstrip())
            found.put(None)

        threading.Thread(target=read, daemon=True).start()
        while True:
            try:
                line = found.get(timeout=LOOK_S)
            except queue.Empty:
                line = ""
            if line is None:
                return
            if line:
                yield line
            if time.monotonic() >= self._deadline:
                raise CommandError(
                    "not deployed within --timeout: CloudFormation goes on with what it has begun; repeat the"
                    " command to go on from there",
                    EXIT_FAILED,
                )


def environment(of: Mapping[str, str], region: str, home: Path) -> dict[str, str]:
    """What the CDK runs with: the region is said, and nothing asks, colours or phones home."""
    env = {
        **of,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "CI": "true",
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        # The CDK's launcher looks for its Node there.
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), of.get("PATH", os.defpath))),
    }
    if of.get("AWS_ENDPOINT_URL"):
        # The CDK notes which account a key belongs to, for good: elsewhere it may belong to another.
        env["CDK_HOME"] = str(home)
    return env


def refusal(words: str) -> str:
    """Who may not do what, where a deployment failed for that; empty where it failed for something else."""
    action = action_in(words)
    if action is None:
        return ""
    role = re.search(r"assumed-role/((cdk|SpotRelay)-[^/]+)/", words)
    if role:
        again = ", or run .venv/bin/cdk bootstrap again" if role[2] == "cdk" else ""
        return f"the role {role[1]} may not do {action}: allow it{again}"
    return f"you may not do {action}: docs/deploy.md, Who may deploy, lists what a deployment needs"


def why(lines: Sequence[str]) -> str:
    """Why a deployment failed: CloudFormation's words where there are any, else how the log ends."""
    found = [line.strip() for line in lines if _FAILED.fullmatch(line) and not _is_cancelled(line)]
    return "\n  ".join(dict.fromkeys(found[:_SHOWN])) if found else _last(lines)


_SHOWN = 5


def _is_cancelled(line: str) -> bool:
    """What stopped because something else failed says nothing."""
    return "cancelled" in line


def _last(lines: Sequence[str]) -> str:
    said = [line.strip() for line in lines if line.strip()]
    return said[-1] if said else "it said nothing"


def qualifier() -> str:
    """Of the account's bootstrap stack, by which its bucket and its version are found."""
    return str(configured().get("@aws-cdk/core:bootstrapQualifier", DEFAULT_QUALIFIER))


def configured() -> Mapping[str, Any]:
    """The context that cdk.json has."""
    try:
        context: Mapping[str, Any] = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    except (OSError, ValueError, KeyError):
        return {}
    return context
