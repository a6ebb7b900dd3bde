"""How tables are printed, on terminals of several widths."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from spotrelay.operator.cli import cost, history, prices, status
from spotrelay.operator.cli.app import app
from spotrelay.operator.cli.tables import draw, table
from spotrelay.operator.look.cost import Cost, DayCost
from spotrelay.operator.look.curves import curves
from spotrelay.operator.look.history import history as told
from spotrelay.plane.accounting.spending import Spending
from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving.steps import WARNED
from spotrelay.plane.view.cells import loss_cells, replica_cells
from spotrelay.plane.view.status import status as judged
from tests.operate.replicas import START, replica
from tests.operate.test_status import NOW, on, seen

INSTANCE = "i-0492a78a8d81649fb"

WIDTHS = (60, 80, 100, 200)

LONG = CapacityPool("ap-southeast-2", "ap-southeast-2a", "g6e.48xlarge")


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of the terminal that standard output is."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def plain(printed: str) -> str:
    """Without what makes letters bold."""
    return re.sub("\x1b\\[[0-9;]*m", "", printed)


def holds(printed: str, width: int, cells: list[str]) -> None:
    """Each of the cells stands on one line, and no line is wider than the terminal."""
    lines = plain(printed).splitlines()
    for cell in cells:
        assert any(cell in line for line in lines), f"{cell!r} isn't in:\n{plain(printed)}"
    assert max(map(cell_len, lines)) <= width, plain(printed)
    assert "…" not in printed


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


def test_what_is_too_wide_stands_below_with_its_rows_name(capsys: pytest.CaptureFixture[str]) -> None:
    """The columns that name a row come again in each part, where the row has more to say; an empty one
    without a title doesn't come.
    """
    shown = table(("ID", "POOL", "USD/H", ""), left=("POOL", ""))
    shown.add_row("17", "us-east-1a/g5.xlarge", "0.402", "")
    shown.add_row("18", "us-east-1b/g5.xlarge", "", "")
    draw(Console(width=25), shown)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["ID", "POOL"],
        ["17", "us-east-1a/g5.xlarge"],
        ["18", "us-east-1b/g5.xlarge"],
        [],
        ["ID", "USD/H"],
        ["17", "0.402"],
    ]


def test_a_name_with_brackets_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """EC2's words may have some."""
    shown = table(("ID", ""), left=("",))
    shown.add_row("17", "refused [red] by EC2")
    draw(Console(width=80), shown)
    assert "[red]" in capsys.readouterr().out


def test_in_a_file_a_line_stays_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """However long a reason is, its row can be found with grep."""
    found = judged(seen(_waiting("no capacity " * 40)))
    status._print([found])
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if "REQUESTED" in line]
    assert line.count("no capacity") == 40
    assert not [line for line in lines if line != line.rstrip()]


def _waiting(words: str) -> Replica:
    requested = replica(4, ReplicaState.REQUESTED, entered={"REQUESTED": 3000})
    return replace(requested, offering=None, launch=f"all 8 pools; EC2: {words}")


def _lost(id_: int, at: float) -> Replica:
    """One that was lost in the pool with the longest name, after a warning."""
    entered: dict[str, float] = {"REQUESTED": 0, "PROVISIONING": 1, "READY": 60, "DRAINING": at}
    made = replica(id_, ReplicaState.TERMINATED, entered={**entered, "TERMINATED": at + 100})
    return replace(
        made,
        instance_id=INSTANCE,
        offering=Offering(LONG, PurchaseOption.SPOT),
        warned_at=START + seconds(at),
        reason=WARNED,
    )


def test_a_status_has_every_cell(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    """ID, version and what EC2 answered, too: of what waits the last is what counts."""
    words = "There is no Spot capacity available that matches your request"
    serving = replace(on(3), instance_id=INSTANCE, offering=Offering(LONG, PurchaseOption.ON_DEMAND))
    found = judged(seen(serving, _waiting(words)))
    status._print([found])
    printed = capsys.readouterr().out
    whole = [cell for row in found.replicas for cell in replica_cells(row)[:-1]]
    holds(printed, width, [*whole, *status.TITLES])
    kept = " ".join(plain(printed).split())
    assert all(word in kept for word in words.split())


def test_a_status_that_is_watched_is_the_same(width: int) -> None:
    """What is drawn anew every two seconds drops no column, either."""
    from rich.console import Group

    found = judged(seen(replace(on(3), instance_id=INSTANCE, replaces=2)))
    out = Console(width=width)
    with out.capture() as shown:
        out.print(Group(*status._rendered(found)))
    holds(shown.get(), width, [cell for row in found.replicas for cell in replica_cells(row)])


def test_a_history_has_every_number(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a loss of another day, whose time is as long as times get."""
    snapshot = seen(_lost(1, 900.0), _lost(2, 1000.0), on(3))
    found = told(replace(snapshot, at=NOW + timedelta(days=2)), START, {})
    history._print(found, "7d")
    cells = [cell for loss in found.losses for cell in loss_cells(loss)]
    holds(
        capsys.readouterr().out,
        width,
        [*cells, *history.TITLES, "2026-01-01 00:15:00", "ap-southeast-2a/g6e.48xlarge"],
    )


def test_prices_have_every_number(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The curve has as many blocks as there is room for."""
    changes = {LONG: [(START, 12.3456), (NOW, 23.4567)]}
    found = curves(changes, (LONG,), {"g6e.48xlarge": 30.1234}, START)
    prices._print(found, START, NOW)
    printed = capsys.readouterr().out
    holds(printed, width, ["12.3456", "23.4567", "30.1234", "78 %", "OF IT", "ap-southeast-2a/g6e.48xlarge"])
    assert 24 <= sum(letter in "▁▂▃▄▅▆▇█" for letter in printed) <= prices.SAMPLES


def test_costs_have_every_number(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A day of a large fleet."""
    spent = Spending(spot_usd=12_345.671, listed_usd=34_567.891, disk_usd=1_234.5, spot_hours=2400)
    day = DayCost("2026-01-01", spent)
    cost._print(Cost("chat", START, NOW, spent, 0.0, 0.0, (day,), ()), 1)
    cells = ["2026-01-01", "2,400.0", "12,345.67", "34,567.89", "1,234.50", "IF ON-DEMAND"]
    holds(capsys.readouterr().out, width, cells)


@pytest.mark.parametrize(
    "arguments",
    [
        ("catalog",),
        ("catalog", "--gpu", "H100"),
        ("recommend", "--params", "8B", "--offline", "--region", "us-east-1"),
    ],
)
def test_what_helps_to_choose_has_every_number(
    width: int, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every word of what stands in a file stands in a terminal, too."""
    narrow = plain(CliRunner().invoke(app, arguments).stdout)
    monkeypatch.delenv("TTY_COMPATIBLE")
    in_a_file = CliRunner().invoke(app, arguments).stdout
    assert len(in_a_file) > 1000
    assert not set(in_a_file.split()) - set(narrow.split())
