"""Where a start's time went: what is on record is told apart, and what isn't is unknown."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from spotrelay.operator.cli import cold_start
from spotrelay.operator.look.cold_start import ADVICE, LETTERS, MOST, NOT_TOLD_APART, Goal, bar, cold_starts
from spotrelay.operator.look.explain import explain
from spotrelay.plane.core.replica import Phase, Replica, ReplicaState
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.view.starts import WHOSE, Part, start_of
from spotrelay.plane.view.status import status
from tests.operate.replicas import START, replica
from tests.operate.test_status import SPEC, seen

PHASES = {Phase.ANSWERED: 225, Phase.REGISTERED: 226}
ENTERED = {"REQUESTED": 0.0, "PROVISIONING": 2.0, "STARTING": 15.0, "READY": 236.0}


def started(id_: int = 1, state: ReplicaState = ReplicaState.READY, until_s: float = 1e9) -> Replica:
    """One that starts like this, as far as it has come until then."""
    entered = {name: at for name, at in ENTERED.items() if at <= until_s}
    phases = {phase: START + seconds(at) for phase, at in PHASES.items() if at <= until_s}
    return replica(id_, state, entered=entered, phases=phases, instance_id=f"i-{id_}")


STARTS = (started(1), replace(started(2), phases={}), started(3, ReplicaState.STARTING, until_s=50))
"""One that is told apart, one of before, one under way."""


def parts_of(one: Replica) -> dict[str, float | None]:
    """What its start took, by the stretches' names."""
    start = start_of(one)
    assert start is not None
    return {stretch.name: stretch.took_s for stretch in start.stretches}


def test_what_is_on_record_is_told_apart() -> None:
    """Each part ends where the next one begins, and together they are the whole."""
    took = parts_of(started())
    assert took == {"request": 2, "launch": 13, "instance": 210, "registration": 1, "check": 10}
    start = start_of(started())
    assert start is not None
    assert start.took_s == 236 == sum(filter(None, took.values()))


def test_what_is_not_reported_is_unknown() -> None:
    """A control plane of before noted no answer: one stretch for all of it, and nothing is guessed."""
    old = replace(started(), phases={})
    assert parts_of(old) == {"request": 2, "launch": 13, "instance + registration + check": 221}


def told(**at_s: float) -> Replica:
    """One whose instance told when it reached what."""
    phases = {Phase(name): START + seconds(at) for name, at in at_s.items()}
    return replace(started(), phases={**started().phases, **phases})


def test_what_its_instance_told_is_told_apart() -> None:
    """From boot to load; the kernel begins a moment before EC2 calls the instance running."""
    one = told(booted=12, sets_up=30, has_files=70, is_set_up=100, loads=125)
    assert parts_of(one) == {
        "request": 2,
        "launch": 10,
        "boot": 18,
        "files": 40,
        "set-up": 30,
        "models": 25,
        "load": 100,
        "registration": 1,
        "check": 10,
    }
    start = start_of(one)
    assert start is not None
    assert start.took_s == sum(filter(None, parts_of(one).values()))


def test_what_took_no_time_was_not_there() -> None:
    """A service without files and models has no such parts; nothing is shown for them."""
    one = told(booted=12, sets_up=30, has_files=30, is_set_up=100, loads=100)
    assert list(parts_of(one)) == ["request", "launch", "boot", "set-up", "load", "registration", "check"]


def test_what_its_instance_left_out_is_unknown() -> None:
    """A line that was cut, or a time that was none of this start: that part and the next are one stretch."""
    one = told(sets_up=30, is_set_up=100, loads=125)
    took = parts_of(one)
    assert (took["launch"], took["boot"], took["files + set-up"]) == (13, 15, 70)
    found = cold_starts(seen(one))
    (unknown,) = (one for one in found.usual if one.name == "files + set-up")
    assert (unknown.letter, unknown.advice) == ("?", NOT_TOLD_APART)


def test_times_out_of_order_add_up_all_the_same() -> None:
    """An instance's clock may have jumped: no part is less than nothing, and together they are the whole."""
    one = told(booted=12, sets_up=90, has_files=70, is_set_up=100, loads=125)
    took = [at for at in parts_of(one).values() if at is not None]
    assert min(took) >= 0
    assert sum(took) == 236


def test_without_a_probe_nobody_knows_when_it_answered() -> None:
    """The load balancer alone asks it: the registration is with what comes before."""
    one = started()
    one = replace(one, phases={Phase.REGISTERED: one.phases[Phase.REGISTERED]})
    assert parts_of(one) == {"request": 2, "launch": 13, "instance + registration": 211, "check": 10}


def test_a_start_under_way_says_what_it_is_at() -> None:
    """On one line, in status, explanation and page."""
    now = START + seconds(86)
    starting = started(3, ReplicaState.STARTING, until_s=50)
    start = start_of(starting)
    assert start is not None
    assert start.took_s is None
    words = "request 2.0 s, launch 13 s, then 1 min 11 s so far"
    assert start.in_words(now) == words
    looked = replace(seen(starting), at=now)
    (row,) = status(looked).replicas
    assert row.note == words
    found = explain(looked, 3, None)
    assert found is not None
    assert dict(found.lines)["start"] == words


@pytest.mark.parametrize(
    "one",
    [
        replace(started(), is_adopted=True),
        replace(started(), entered={**started().entered, ReplicaState.DRAINING: START + seconds(100)}),
        replica(1, entered={"PROVISIONING": 0, "READY": 10}),
        replica(1, entered={"REQUESTED": 5, "PROVISIONING": 0, "READY": 10}),
    ],
    ids=["adopted", "came back", "no request", "taken in"],
)
def test_what_had_no_start_has_none(one: Replica) -> None:
    """It ran before anybody knew of it, or had started long before."""
    assert start_of(one) is None


def test_a_resume_begins_with_it() -> None:
    """The standby was requested days before; it counts as no cold start."""
    resumed = replace(started(), is_standby=True, is_fallback=True)
    start = start_of(resumed)
    assert start is not None
    assert start.began == START + seconds(2)
    assert start.stretches[0].parts == (Part.LAUNCH,)
    found = cold_starts(seen(resumed))
    assert len(found.starts) == 1
    assert found.usual == ()


def test_clocks_that_are_apart_take_no_time_away() -> None:
    """Functions' clocks may be a second apart."""
    one = started()
    one = replace(one, phases={**one.phases, Phase.ANSWERED: START + seconds(226.5)})
    assert parts_of(one)["registration"] == 0


def test_what_is_usual_is_the_median_and_who_failed_is_left_out() -> None:
    """Of those that came into rotation; what nothing tells apart stands by itself, and says so."""
    slow = started(4)
    slow = replace(slow, phases={**slow.phases, Phase.ANSWERED: START + seconds(185)})
    failed = replica(5, ReplicaState.FAILED, entered={"REQUESTED": 0, "PROVISIONING": 1, "FAILED": 900})
    found = cold_starts(seen(*STARTS, slow, failed))
    assert {start.replica.id for start in found.starts} == {1, 2, 3, 4}
    usual = {one.name: one for one in found.usual}
    assert (usual["instance"].median_s, max(usual["instance"].took_s)) == (190, 210)
    assert len(usual["request"].took_s) == 3
    assert usual["instance"].advice == ADVICE[Part.INSTANCE]
    unknown = usual["instance + registration + check"]
    assert (unknown.advice, unknown.whose) == (
        NOT_TOLD_APART,
        "image, service file, SpotRelay, load balancer",
    )


def asking(within_s: float, *replicas: Replica) -> Goal:
    """What comes of a service file's `start_within`."""
    goal = cold_starts(seen(*replicas, spec=replace(SPEC, start_within_s=within_s))).goal
    assert goal is not None
    return goal


SLOW = told(booted=12, sets_up=30, has_files=70, is_set_up=100, loads=125)
"""236 s: EC2, the load balancer and SpotRelay take 23 of them, its model's load 100."""


BY_WHAT = "spotrelay validate --account FILE says by what"


@pytest.mark.parametrize(
    ("within_s", "words"),
    [
        (236, "1 of 1 kept it, median 3 min 56 s"),
        (136, f"0 of 1 kept it, median 3 min 56 s. Shorten load (1 min 40 s): {BY_WHAT}"),
        (135, f"0 of 1 kept it, median 3 min 56 s. Shorten load (1 min 40 s), files (40 s): {BY_WHAT}"),
        (
            23,
            "0 of 1 kept it, median 3 min 56 s. Out of reach: EC2, the load balancer and SpotRelay take 23 s"
            " themselves. Ask for more, or have standbys: docs/standbys.md",
        ),
    ],
)
def test_a_goal_says_what_to_shorten(within_s: float, words: str) -> None:
    """What takes most first, no more than is needed; and that nothing helps, where others take as long."""
    assert asking(within_s, SLOW).words.partition(" s: ")[2] == words


def test_a_goal_waits_for_a_start() -> None:
    """One that is under way tells nothing of it; and who asks for nothing is told nothing."""
    assert asking(60, STARTS[2]).words == "start_within: 1 min: no cold start is over yet"
    assert cold_starts(seen(SLOW)).goal is None


def test_a_goal_is_in_the_json_too() -> None:
    """With what its line says, as numbers."""
    asked = seen(SLOW, spec=replace(SPEC, start_within_s=136))
    assert cold_starts(asked).to_json()["start_within"] == {
        "within_s": 136,
        "starts": 1,
        "kept": 0,
        "median_s": 236,
        "fixed_s": 23,
        "is_out_of_reach": False,
        "to_shorten": ["load"],
    }


def test_a_goal_shortens_nothing_that_nobody_can_tell_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """A stretch with the load balancer's check in it may be all its own."""
    old = replace(started(), phases={})
    goal = asking(60, old)
    assert (goal.to_shorten, goal.fixed_s) == ((), 15)
    assert asking(23, SLOW).to_shorten == (), "nor where it can't be kept"
    found = cold_starts(seen(old, spec=replace(SPEC, start_within_s=60)))
    cold_start._print(found)
    assert "start_within: 1 min: 0 of 1 kept it" in capsys.readouterr().out


def test_the_latest_are_shown() -> None:
    """So many, the newest first."""
    many = []
    for id_ in range(1, MOST + 6):
        entered = {state: at + timedelta(hours=id_) for state, at in started().entered.items()}
        many.append(replace(started(id_), entered=entered, phases={}))
    found = cold_starts(seen(*many))
    assert [start.replica.id for start in found.starts] == list(range(MOST + 5, 5, -1))


def test_every_part_has_somebody_a_letter_and_advice() -> None:
    """And no two the same letter."""
    assert WHOSE.keys() == ADVICE.keys() == LETTERS.keys() == {*Part}
    assert len({*LETTERS.values(), "?"}) == len(Part) + 1


def test_a_bar_is_as_long_as_what_it_stands_for() -> None:
    """What took any time at all is there."""
    start = start_of(started())
    assert start is not None
    drawn = bar(start, START, 236, 118)
    assert drawn == "q" + "e" * 6 + "i" * 105 + "r" + "c" * 5
    unknown = start_of(replace(started(), phases={}))
    assert unknown is not None
    assert bar(unknown, START, 236, 118) == "q" + "e" * 6 + "?" * 110


def test_the_table_has_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    """Each start with its bar, each part with who can shorten it and how, and what is under way."""
    cold_start._print(replace(cold_starts(seen(*STARTS)), at=START + seconds(300)))
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert any(line.startswith("00:00:00 1 us-east-1a/g5.xlarge spot 3 min 56 s q") for line in lines)
    assert f"i instance image, service file 3 min 30 s 3 min 30 s {ADVICE[Part.INSTANCE]}" in lines
    assert any(line.startswith("replica 3: request 2.0 s, launch 13 s") for line in lines)
    cold_start._print(cold_starts(seen()))
    assert "no start is on record" in capsys.readouterr().out
