"""The command behind `make demo`: `python -m spotrelay.demo [--warning-s S] [--out DIRECTORY]`.

Exit status: 0 if every promise was kept, 1 if one was broken, 2 if the demo could not be given, 128 plus the
signal's number if it was interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.markup import escape

from spotrelay.demo import deployment, environment
from spotrelay.demo.errors import DemoError, Interrupted
from spotrelay.demo.processes import Processes
from spotrelay.demo.settings import DEFAULT_WARNING_S, ROOT, Settings, warning_s_of

BROKEN, NOT_GIVEN = 1, 2

LOG_WIDTH = 120
"""Where there is no terminal that has one: the table at the end fits."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Give the demo; the exit status."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=LOG_WIDTH)
    try:
        settings = _settings()
        for number in STOPPING:
            signal.signal(number, _interrupt)
        report = _give(settings, console)
    except DemoError as error:
        return _fail(str(error))
    except Interrupted as interrupted:
        name = signal.Signals(interrupted.signal_number).name
        console.print(f"demo: interrupted ({name}); the local cloud and everything in it is stopped")
        return 128 + interrupted.signal_number
    return _conclude(console, report, settings.out)


def _settings() -> Settings:
    parser = argparse.ArgumentParser(
        prog="python -m spotrelay.demo",
        description="Deploy SpotRelay into a local AWS, serve, interrupt, show what happens.",
    )
    parser.add_argument(
        "--warning-s",
        default=os.environ.get("WARNING_S") or str(DEFAULT_WARNING_S),
        help="seconds from an interruption warning until EC2 takes the instance"
        f" (default: $WARNING_S, or {DEFAULT_WARNING_S:g})",
    )
    parser.add_argument(
        "--out", type=Path, default=Settings().out, help="where the report goes (default: out/demo)"
    )
    options = parser.parse_args()
    return Settings(warning_s_of(options.warning_s), options.out.resolve())


def _give(settings: Settings, console: Console) -> dict[str, Any]:
    # Everything here is on loopback; boto3 and urllib would ask a proxy for it, too.
    os.environ["no_proxy"] = "127.0.0.1"
    deployment.clear(settings.out)
    processes = Processes(settings.logs, ROOT)
    with tempfile.TemporaryDirectory(prefix="spotrelay-demo-") as home:
        try:
            # Late: boto3 and what belongs to it take half a second, in which the user shall see something.
            from spotrelay.demo.director import Director
            from spotrelay.demo.view import View

            with View(console) as view:
                env = environment.clean(os.environ)
                return Director(settings, processes, view, env, Path(home)).run()
        finally:
            # A second Ctrl-C must not leave half of them behind; this takes seconds at most.
            for number in STOPPING:
                signal.signal(number, signal.SIG_IGN)
            processes.stop_all()


def _interrupt(number: int, _: FrameType | None) -> None:
    raise Interrupted(number)


def _conclude(console: Console, report: dict[str, Any], out: Path) -> int:
    """Show what came of it; the exit status."""
    from spotrelay.demo.view import conclusion

    console.print(conclusion(report))
    where = os.path.relpath(out)
    console.print(f"[dim]{escape(where)}/report.json, timeline.svg, logs/[/]", highlight=False)
    return 0 if report["ok"] else BROKEN


def _fail(message: str) -> int:
    with suppress(OSError):
        sys.stderr.write(f"demo: {message}\n")
    return NOT_GIVEN


if __name__ == "__main__":
    sys.exit(main())
