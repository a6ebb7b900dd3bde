"""The mutants themselves: what is drawn, under which names, and that whoever runs one survives it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from tests.mutants import __main__ as command
from tests.mutants import campaign, children, hook, sites
from tests.mutants.campaign import Score, Verdict
from tests.mutants.handmade import HAND_MADE, HandMade, StaleMutantError, handmade
from tests.mutants.mutant import Mutant, drawn, possible
from tests.mutants.operators import OPERATORS
from tests.mutants.sites import ROOT, path_of
from tests.mutants.trial import LEFT_OUT, Stage

pytestmark = pytest.mark.xdist_group("mutants")  # so that they are made once, not once by each worker

SOME_MODULE = "spotrelay.plane.serving.strength"


@cache
def everything() -> list[Mutant]:
    """All that can be drawn of today's code."""
    return [mutant for module in sites.modules() for mutant in possible(module)]


def made(source: str, module: str = SOME_MODULE) -> list[str]:
    """The mutants of a source, each as one line of what follows `def f(...):`."""
    mutants = (ast.unparse(ast.parse(mutant.source)) for mutant in possible(module, source))
    return [" ".join(line.strip() for line in text.splitlines()[1:]) for text in mutants]


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in a process that hasn't imported the package, as pytest's has."""
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_simulation_notices_the_sample() -> None:
    """Three mistakes, put in by the import hook, are each caught within the simulation's first seeds."""
    result = run_python("-m", "tests.mutants", "--sample", "3", "--processes", "1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "│       3 │" in result.stdout
    assert "100 %" in result.stdout


def test_the_tests_notice_a_mutant() -> None:
    """The second stage runs pytest on the mutated module, and names the test that failed."""
    script = (
        "from tests.mutants import trial; from tests.mutants.handmade import handmade; "
        "print(trial.tested(next(m for m in handmade() if m.id == 'time-without-a-zone')))"
    )
    said = run_python("-c", script).stdout.splitlines()[-1]
    assert said.startswith("tests/unit/test_events.py::")


def test_a_package_that_is_imported_already_is_refused() -> None:
    """Otherwise the mutant would never run, and would pass for one that nothing notices."""
    import spotrelay  # noqa: F401

    with pytest.raises(RuntimeError, match="imported already"):
        hook.install(handmade()[0])


@pytest.mark.parametrize("hand_made", HAND_MADE, ids=lambda hand_made: hand_made.name)
def test_mutants_by_hand_fit_the_code(hand_made: HandMade) -> None:
    """The text of each occurs once in the package, and what it becomes is Python."""
    before, after = hand_made.mutant().texts()
    assert ast.dump(ast.parse(before)) != ast.dump(ast.parse(after))


@pytest.mark.parametrize("old", ["there is no such text", "from collections.abc import Mapping\n"])
def test_a_stale_mutant_is_named(old: str) -> None:
    """One whose text is gone, or not the only one, says which it is and where to mend it."""
    stale = HandMade("gone", old, "", "nothing")
    with pytest.raises(StaleMutantError, match=r"'gone'.*handmade\.py"):
        stale.mutant()


@pytest.mark.parametrize(
    ("operator", "body", "expected"),
    [
        ("comparison", "return a < b", {"return a <= b", "return a >= b"}),
        ("comparison", "return a is not b", {"return a is b"}),
        ("comparison", "return a not in b", {"return a in b"}),
        ("connective", "return a and b", {"return a or b"}),
        ("operand", "return a and b", {"return a", "return b"}),
        ("operand", "return a | b", {"return a", "return b"}),
        ("negation", "return not a", {"return a"}),
        ("negation", "return -a", {"return a"}),
        ("constant", "return 7", {"return 8", "return 0"}),
        ("constant", "return True", {"return False"}),
        ("arithmetic", "return a + b", {"return a - b"}),
        ("arithmetic", "return a - b", {"return a + b", "return a"}),
        ("arithmetic", "a += b", {"a -= b", "a = b"}),
        ("condition", "return [x for x in a if b]", {f"return [x for x in a if {c}]" for c in (True, False)}),
        ("statement", "a()", {"pass"}),
        ("statement", "a = b", {"pass"}),
        ("statement", "c = b", set()),
        ("keyword", "return min(a, key=b)", {"return min(a)"}),
        ("builtin", "return min(a)", {"return max(a)"}),
        ("builtin", "return sorted(a)", {"return sorted(a, reverse=True)"}),
        ("element", "return [a, b]", {"return [a]", "return [b]"}),
        ("element", "return {a: b}", {"return {}"}),
        ("element", "return a in (a, b)", {"return a in (a,)", "return a in (b,)"}),
        ("element", "return (a, b)", set()),
        (
            "case",
            "match a:\n  case 1:\n   return b\n  case 2:\n   return a",
            {"match a: case 1: return b", "match a: case 2: return a"},
        ),
        (
            "case",
            "match a:\n  case A(b=1) | B():\n   return b",
            {f"match a: case {pattern}: return b" for pattern in ("A() | B()", "A(b=1)", "B()")},
        ),
        ("member", "return Cause.LOSS", {"return Cause.FAILURE"}),
        ("handler", "try:\n  a()\n except A:\n  b()", {"try: a() except A: raise"}),
    ],
)
def test_what_each_operator_makes(operator: str, body: str, expected: set[str]) -> None:
    """Each puts in exactly these mistakes."""
    source = f"def f(a, b):\n {body}\n"
    ids = [mutant.id.split(":")[2] for mutant in possible(SOME_MODULE, source)]
    found = {text for id_, text in zip(ids, made(source), strict=True) if id_ == operator}
    assert found == expected


@pytest.mark.parametrize("operator", OPERATORS)
def test_each_operator_has_something_to_do(operator: str) -> None:
    """Each makes mutants of today's code, which differ from it and are Python."""
    of_it = [mutant for mutant in everything() if mutant.id.split(":")[2] == operator]
    assert of_it
    # The first and last few: to write them all would take half a minute.
    for mutant in (*of_it[:3], *of_it[-3:]):
        before, after = mutant.texts()
        assert ast.dump(ast.parse(before)) != ast.dump(ast.parse(after)), mutant.id


@pytest.mark.parametrize(
    "source",
    [
        "from a import b",
        '__all__ = ["b"]',
        "Alias = A | B",
        'def f():\n """Says 1 + 1."""',
        "def f(a: B | C = None) -> B | C: ...",
        "class C(A | B): ...",
        "@d(x=1)\nclass C: ...",
        'def f():\n facts = {"a": 1}\n facts["b"] = 2',
        "def f(ports):\n ports.telemetry.record('x', a=1 + 1)",
        "def f(ports):\n ports.telemetry.record('x', a=1 + 1)\ndef g():\n f(1)",
        "def f(a):\n assert a > 1",
        "def f(a):\n return",
    ],
)
def test_what_is_left_out(source: str) -> None:
    """Declarations, words for people, log lines and what only forbids aren't mutated."""
    found = [mutant.change for mutant in possible(SOME_MODULE, source) if mutant.change != "without: ..."]
    assert found == []


def test_what_is_said_about_what_is_raised_is_left_out() -> None:
    """An error may be forgotten, but its words aren't mutated."""
    assert made("def f(a):\n raise A(f'{a + 1}', a + 1)") == ["pass"]


def test_ids_are_unique() -> None:
    """One ID, one mutant."""
    ids = [mutant.id for mutant in (*everything(), *handmade())]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("module", sites.modules())
def test_ids_outlive_changes_elsewhere(module: str) -> None:
    """Comments, blank lines and another function above change no ID."""
    source = path_of(module).read_text(encoding="utf-8")
    lines = source.splitlines()
    first = next(
        i for i, line in enumerate(lines) if line.startswith(("def ", "class ", "@")) or " = " in line
    )
    more = ["", "# A comment.", "", "def _quite_new(a, b):", "    return a + b < 1", ""]
    moved = "\n".join([*lines[:first], *more, *lines[first:]])
    ids = {mutant.id for mutant in possible(module, source)}
    after = {mutant.id for mutant in possible(module, moved)}
    assert ids <= after
    assert all(id_.split(":")[1] == "_quite_new" for id_ in after - ids)


def test_an_id_changes_with_its_code() -> None:
    """What is said of a mutant never applies to another that came to stand in the same place."""
    before, after = (next(possible(SOME_MODULE, f"def f(a):\n return a < {n}")).id for n in (1, 2))
    assert before != after


def test_a_draw_is_spread_and_hardly_changes() -> None:
    """Each module has its share; a mutant less, or a line more, leaves the others drawn."""
    draw = drawn(everything(), 200, seed=1)
    assert len({m.id for m in draw}) == 200
    for module in sites.modules():
        share = sum(m.module == module for m in everything()) / len(everything())
        assert abs(sum(m.module == module for m in draw) - 200 * share) < 1
    rest = [m for m in everything() if m.id != draw[0].id]
    again = drawn(rest, 200, seed=1)
    assert len({m.id for m in draw} - {m.id for m in again}) <= 3
    assert {m.id for m in drawn(everything(), 200, seed=2)} != {m.id for m in draw}
    source = path_of(SOME_MODULE).read_text(encoding="utf-8")
    of_one, moved = (list(possible(SOME_MODULE, text)) for text in (source, f"# A comment.\n{source}"))
    assert [m.id for m in drawn(of_one, 50, seed=1)] == [m.id for m in drawn(moved, 50, seed=1)]


def test_everything_may_be_drawn() -> None:
    """Who asks for more than there is gets all."""
    assert len(drawn(everything(), 10**6, seed=1)) == len(everything())


def test_what_is_named_exists() -> None:
    """Functions and tests that are left out by name are there."""
    assert [path for path in LEFT_OUT if not (ROOT / path).exists()] == []
    for module, names in sites.TEXTS.items():
        tree = ast.parse(path_of(module).read_text(encoding="utf-8"))
        assert names <= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _raise() -> str | None:
    raise KeyError("gone")


def _spin() -> str | None:
    while True:
        pass


@pytest.mark.parametrize(
    ("work", "answer"),
    [
        (lambda: None, None),
        (lambda: "seen", "seen"),
        (_raise, "KeyError('gone')"),
        (_spin, "no end after 1 s of processor time"),
        (lambda: os._exit(3), "the process died: exit code 3"),
        (lambda: os.kill(os.getpid(), 9), "the process died: SIGKILL"),
    ],
)
def test_whatever_a_mutant_does_is_an_answer(work: Callable[[], str | None], answer: str | None) -> None:
    """A hang, an exception or a crash is told like a violation is, and ends nobody else."""
    jobs = deque([children.Job("it", work, 1), children.Job("another", lambda: None, 1)])
    done = {ended.key: ended.answer for ended in children.run(jobs, 1, lambda: None)}
    assert done == {"it": answer, "another": None}


def test_who_only_waits_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that waits for ever uses no processor time, and is ended all the same."""
    monkeypatch.setattr(children, "WALL_S", 0.1)
    monkeypatch.setattr(children, "LOOK_S", 0.1)
    jobs = deque([children.Job("it", lambda: time.sleep(600), 1)])
    assert [ended.answer for ended in children.run(jobs, 1, lambda: None)] == ["no end after 0 s"]


def _verdicts(by_simulation: int, by_tests: int, by_none: int) -> list[Verdict]:
    said = [("seen", None)] * by_simulation + [(None, "seen")] * by_tests + [(None, None)] * by_none
    return [Verdict(m, dict(zip(Stage, s, strict=True))) for m, s in zip(everything(), said, strict=False)]


@pytest.mark.parametrize(
    ("verdicts", "equivalent", "code", "complaint"),
    [
        ((76, 20, 4), (), 0, ""),
        ((74, 24, 2), (), 1, "simulation alone must catch 75 %"),
        ((76, 18, 6), (), 1, "together must catch 95 %"),
        ((76, 18, 6), (99, 98), 0, ""),
        ((76, 20, 4), (0,), 1, "it is caught, so take it out"),
    ],
)
def test_what_the_verdict_goes_by(
    verdicts: tuple[int, int, int],
    equivalent: tuple[int, ...],
    code: int,
    complaint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Too few caught fails, by simulation or together; equivalent ones count only if they are caught."""
    all_ = _verdicts(*verdicts)
    result = campaign.Result(all_, {all_[i].mutant.id: "why" for i in equivalent})
    assert command._judge(Console(width=200), result, 1.0, is_part=False) == code
    assert complaint in capsys.readouterr().out


def test_a_log_shows_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a terminal a quarter of an hour isn't silent: a line tells how far it has come."""
    tried = _verdicts(20, 10, 30)

    def fake(*_: object, progress: Callable[[list[Verdict]], None], **__: object) -> list[Verdict]:
        for count in (0, 24, 25, 26, 51, 60):
            progress(tried[:count])
        return tried

    monkeypatch.setattr(command, "campaign", fake)
    monkeypatch.setattr(sys, "argv", ["mutants"])
    command._tried([v.mutant for v in tried], [], command._arguments())
    lines = capsys.readouterr().err.splitlines()
    assert [line.rsplit(",", 1)[0] for line in lines] == [
        "25 of 60 mutants, 25 caught",
        "51 of 60 mutants, 30 caught",
    ]


def test_what_was_cut_off_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It takes two hours: the file has every verdict so far, and they count while the code is the same."""
    tried, file = _verdicts(3, 1, 1), tmp_path / "verdicts.json"
    mutants = [v.mutant for v in tried]

    def ended(*_: object, progress: Callable[[list[Verdict]], None], **__: object) -> list[Verdict]:
        progress(tried[:4])
        raise KeyboardInterrupt

    def went_on(*_: object, known: dict[str, Verdict], **__: object) -> list[Verdict]:
        return [*known.values()]

    monkeypatch.setattr(sys, "argv", ["mutants", "--json", str(file)])
    asked, kept = command._arguments(), command.Kept(file, {}, mutants)
    kept.began -= 60
    monkeypatch.setattr(command, "campaign", ended)
    with pytest.raises(KeyboardInterrupt):
        command._tried(mutants, list(Stage), asked, kept=kept)
    monkeypatch.setattr(command, "campaign", went_on)
    again = command.Kept(file, {}, mutants)
    assert command._tried(mutants, list(Stage), asked, kept=again) == tried[:4]
    assert again.before_s >= 60
    assert command.Kept(file, {}, mutants, code="other").known == {}


def test_what_is_known_is_not_tried_again() -> None:
    """Only what isn't; and the stages must still have nothing to say about the code as it is."""
    (known,) = _verdicts(0, 1, 0)
    found = campaign.campaign([known.mutant], [], known={known.mutant.id: known})
    assert found == [known]


def test_every_stage_is_asked_of_what_one_has_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict of the simulation alone says nothing of the tests."""
    (known,) = _verdicts(1, 0, 0)
    half = Verdict(known.mutant, {Stage.SIMULATION: "seen"})
    asked: list[object] = []

    def run(jobs: deque[children.Job[object]], *_: object) -> list[object]:
        asked.extend(job.key for job in jobs)
        return []

    monkeypatch.setattr(children, "run", run)
    for verdict in (half, known):
        campaign.campaign([known.mutant], list(Stage), every_stage=True, known={known.mutant.id: verdict})
    controls = 2 * len(Stage)
    assert len(asked) == controls + 1


def test_nothing_tried_is_nothing_missed() -> None:
    """A module of which nothing is counted has no share to fall short of."""
    assert Score.of([]).percent == 100.0


def test_a_stale_entry_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An entry about a mutant that there isn't any more fails the run, before anything is tried."""
    listed = tmp_path / "equivalent.toml"
    listed.write_text('"serving.strength:gone:operand:1234" = "no reason"\n', encoding="utf-8")
    monkeypatch.setattr(campaign, "EQUIVALENT", listed)
    monkeypatch.setattr(sys, "argv", ["mutants", "--list"])
    assert command.main() == command.EXIT_USAGE
    assert "stale entry 'serving.strength:gone:operand:1234'" in capsys.readouterr().err


def test_a_mutant_shows_what_it_changes() -> None:
    """Its diff has the line before and after."""
    mutant = next(m for m in possible(SOME_MODULE, "def f(a):\n return -a\n") if ":negation:" in m.id)
    assert mutant.diff().splitlines()[2:] == [
        "@@ -1,2 +1,2 @@",
        " def f(a):",
        "-    return -a",
        "+    return a",
    ]
