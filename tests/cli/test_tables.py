"""How tables are printed."""

from __future__ import annotations

import pytest
from rich.console import Console

from spotrelay.cli.tables import draw, table

INSTANCE = "i-0492a78a8d81649fb"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_cell_is_cut(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    """However narrow the terminal, an instance's ID can be copied from it; a note takes several lines."""
    shown = table(("ID", "INSTANCE", "POOL", ""), left=("INSTANCE", "POOL", ""), wraps=("",))
    shown.add_row("17", INSTANCE, "ap-southeast-2a/g6e.48xlarge", "EC2 takes it back; " * 5)
    draw(Console(width=width), shown)
    printed = capsys.readouterr().out
    assert INSTANCE in printed
    assert "ap-southeast-2a/g6e.48xlarge" in printed
    assert "…" not in printed
    assert printed.count("EC2") == 5
