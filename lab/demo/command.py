"""What the command does: options, one demo at a time, and what came of it."""

from __future__ import annotations

import argparse
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from lab.demo import deployment, environment, stopping
from lab.demo.director import Director
from lab.demo.errors import DemoError
from lab.demo.kept import keep
from lab.demo.processes import Processes
from lab.demo.settings import DEFAULT_WARNING_S, ROOT, DemoSettings, service_of, warning_s_of
from lab.demo.view import View, conclusion
from lab.local.environment import EC2_WARNING_S

KEPT, BROKEN = 0, 1

LOG_WIDTH = 120
"""Where there is no terminal that has one: the table at the end fits."""


def run() -> int:
    """Give the demo; the exit status.

    Raises:
        DemoError: it could not be given.
        Interrupted: somebody stopped it; everything that it started is stopped.
    """
    settings = _settings()
    console = Console()
    if not console.is_terminal:
        console = Console(width=LOG_WIDTH)
    # Everything here is on loopback; boto3 and urllib would ask a proxy for it, too.
    os.environ["no_proxy"] = "127.0.0.1"
    with _alone(settings.out):
        return _give(settings, console)


def _settings() -> DemoSettings:
    parser = argparse.ArgumentParser(
        prog="python -m lab.demo",
        description="Deploy SpotRelay into a local AWS, serve, interrupt, show what happens.",
    )
    parser.add_argument(
        "--warning-s",
        default=os.environ.get("WARNING_S"),
        help="seconds from an interruption warning until EC2 takes the instance"
        f" (default: $WARNING_S, or {DEFAULT_WARNING_S:g}; with --keep EC2's own {EC2_WARNING_S:g})",
    )
    parser.add_argument(
        "--service",
        metavar="FILE",
        help="the file of another service to tell the stories of, as services/slow-start.yaml",
    )
    parser.add_argument(
        "--out", type=Path, default=DemoSettings().out, help="where the report goes (default: out/demo)"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="tell no stories: leave the local cloud up until Ctrl-C, to try things",
    )
    parser.add_argument("--ui", action="store_true", help="open the local page, to watch it in a browser")
    options = parser.parse_args()
    service = service_of(options.service) if options.service else None
    # Commands count from the time of EC2's event, which a shortened warning makes earlier.
    warning_s = options.warning_s or str(EC2_WARNING_S if options.keep else DEFAULT_WARNING_S)
    return DemoSettings(warning_s_of(warning_s), options.out.resolve(), service, options.ui, options.keep)


def _give(settings: DemoSettings, console: Console) -> int:
    deployment.clear(settings.out)
    processes = Processes(settings.logs, ROOT)
    with tempfile.TemporaryDirectory(prefix="spotrelay-demo-") as home:
        try:
            with View(console) as view:
                # What a killed child had no time to remove is removed with this directory.
                env = {**environment.clean(os.environ), "TMPDIR": home}
                director = Director(settings, processes, view, env, Path(home))
                if settings.is_kept:
                    kept = director.bring_up()
                else:
                    report = director.run()
            if settings.is_kept:
                keep(kept, console)
                return KEPT
            console.print(conclusion(report))
            console.print(f"Details: {os.path.relpath(settings.out)}/report.json, timeline-*.svg, logs/")
            console.print(
                "Next: make demo KEEP=1 to try the commands; docs/deploy.md to deploy into an account"
            )
            return KEPT if report["ok"] else BROKEN
        finally:
            stopping.ignore()
            processes.stop_all()


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Keep others away from the output directory.

    Raises:
        DemoError: another demo writes there.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.with_name(f".{out.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(
                f"another demo runs and writes to {out}: wait for its end, or choose another place with --out"
            ) from None
        yield
