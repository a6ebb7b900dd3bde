"""The answers in docs/choosing.md, as `spotrelay` gives them: `python -m lab.choosing` renews them.

Each block whose first line is `$ spotrelay …` is a question, and its other lines are the answer. A comment
`<!-- without: Why not, Pools -->` before it leaves out sections. Nobody is asked and nothing kept: the
answers depend on the bundled data alone. The service that `--service` asks about has a made-up fortnight.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

from typer.testing import CliRunner

from spotrelay.operator.cli import control_plane
from spotrelay.operator.cli.app import app
from spotrelay.plane.accounting.days import Day, PoolDay
from spotrelay.plane.core.pools import CapacityPool, PoolMemory, Survey
from spotrelay.plane.core.requirements import Accelerators, Amount, Requirements

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "choosing.md"

QUESTION = re.compile(
    r"(?P<without><!-- without: (?P<sections>[^>]*) -->\n)?```text\n\$ spotrelay (?P<arguments>[^\n]*)\n"
    r"(?P<answer>.*?)```",
    re.DOTALL,
)


def renewed(text: str) -> str:
    """The document with the answers of now."""
    with _alone(), _deployed():
        return QUESTION.sub(_answered, text)


def _answered(question: re.Match[str]) -> str:
    result = CliRunner().invoke(app, shlex.split(question["arguments"]), catch_exceptions=False)
    dropped = {name.strip() for name in (question["sections"] or "").split(",")}
    sections = result.output.rstrip("\n").split("\n\n")
    kept = "\n\n".join(section for section in sections if section.split("\n")[0] not in dropped)
    return f"{question['without'] or ''}```text\n$ spotrelay {question['arguments']}\n{kept}\n```"


ASKED = Requirements(
    accelerators=(Accelerators("A10G", 1), Accelerators("L4", 1)),
    cpus=Amount(8, at_least=True),
    arch="x86_64",
)
"""What the service's file asks for."""

EVERY_DAY = {
    "us-east-1a/g5.2xlarge": PoolDay(0.55, hours=24.0),
    "us-east-1b/g6.2xlarge": PoolDay(0.41, hours=30.0),
    "us-east-1b/g6.4xlarge": PoolDay(0.47, hours=9.0),
    "us-east-1b/gr6.4xlarge": PoolDay(1.05),
    "us-east-1a/g5.4xlarge": PoolDay(0.71),
    "us-east-1a/g6.8xlarge": PoolDay(0.83),
}
"""Made up."""

ONE_DAY = {
    **EVERY_DAY,
    "us-east-1a/g5.2xlarge": PoolDay(0.55, launched=3, lost=1, hours=24.0),
    "us-east-1b/g6.2xlarge": PoolDay(0.41, launched=4, lost=1, hours=30.0),
    "us-east-1b/g6.4xlarge": PoolDay(0.47, launched=6, lost=5, hours=9.0),
    "us-east-1a/g5.4xlarge": PoolDay(0.71, refused=6),
}
"""One of the fortnight, with all that happened in it."""

SCORES = {"us-east-1a": 4, "us-east-1b": 6}


class _Plane:
    """A control plane with one service and its days, all of it made up."""

    def __init__(self, service: str) -> None:
        self.days = self.store = self
        self._service, self._now = service, datetime.now(UTC)

    def since(self, _: str, __: object) -> list[Day]:
        """A fortnight."""
        dates = [self._now.date() - timedelta(days=age) for age in range(14)]
        scores = {zone: {12: score} for zone, score in SCORES.items()}
        return [
            Day(self._service, one, self._now, pools=EVERY_DAY if number else ONE_DAY, scores=scores)
            for number, one in enumerate(dates)
        ]

    def recall(self, *_: object) -> PoolMemory:
        """What the last survey found."""
        pools = tuple(
            CapacityPool("us-east-1", zone, name)
            for zone, _, name in (pool.partition("/") for pool in EVERY_DAY)
        )
        prices = {"g6.2xlarge": 0.9776, "g5.2xlarge": 1.212}
        survey = Survey(self._service, ASKED, self._now, pools, prices, {}, SCORES, {"us-east-1d": 9})
        return PoolMemory(survey=survey)


@contextmanager
def _deployed() -> Iterator[None]:
    """Commands find the made-up service, whatever it is called."""
    kept = control_plane.find, control_plane.deployed
    found = SimpleNamespace(region="us-east-1", asked=ASKED)
    control_plane.find = lambda service, _: _Plane(service)  # type: ignore[assignment,return-value]
    control_plane.deployed = lambda *_: found  # type: ignore[assignment]
    try:
        yield
    finally:
        control_plane.find, control_plane.deployed = kept


@contextmanager
def _alone() -> Iterator[None]:
    """In the repository, without the user's cache and configuration."""
    before, environment = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as directory:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]
        os.environ["XDG_CACHE_HOME"] = directory
        os.chdir(ROOT)
        try:
            yield
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(environment)


def main() -> None:
    """Renew the answers in the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    news = renewed(text)
    DOCUMENT.write_text(news, encoding="utf-8")
    sys.stdout.write(f"{DOCUMENT}: {'as it was' if news == text else 'renewed'}\n")


if __name__ == "__main__":
    main()
