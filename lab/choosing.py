"""The answers in docs/choosing.md, as `spotrelay` gives them: `python -m lab.choosing` renews them.

Each block whose first line is `$ spotrelay …` is a question, and its other lines are the answer. A comment
`<!-- without: Why not, Pools -->` before it leaves out sections. Nobody is asked and nothing kept: the
answers depend on the bundled data alone.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

from spotrelay.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "choosing.md"

QUESTION = re.compile(
    r"(?P<without><!-- without: (?P<sections>[^>]*) -->\n)?```text\n\$ spotrelay (?P<arguments>[^\n]*)\n"
    r"(?P<answer>.*?)```",
    re.DOTALL,
)


def renewed(text: str) -> str:
    """The document with the answers of now."""
    with _alone():
        return QUESTION.sub(_answered, text)


def _answered(question: re.Match[str]) -> str:
    result = CliRunner().invoke(app, shlex.split(question["arguments"]), catch_exceptions=False)
    dropped = {name.strip() for name in (question["sections"] or "").split(",")}
    sections = result.output.rstrip("\n").split("\n\n")
    kept = "\n\n".join(section for section in sections if section.split("\n")[0] not in dropped)
    return f"{question['without'] or ''}```text\n$ spotrelay {question['arguments']}\n{kept}\n```"


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
