"""An override carries out what it was given for, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.held import Answer, Held, Override
from spotrelay.plane.core.instances import Instance, InstanceState, TargetState
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.ports import Conflict, Denied, PortError, Throttled, Unavailable
from tests.examples import demo_spec
from tests.unit.worlds import (
    Troubled,
    alive,
    counted,
    instance_of,
    recorded,
    rows,
    serving,
    settle,
    word,
)

WRITES = "store.note_held"


@dataclass
class Case:
    """Three replicas that serve, of which EC2 doesn't show some."""

    world: Troubled
    controller: Controller
    hidden: dict[str, Instance] = field(default_factory=dict)

    def hide(self, *replicas: int) -> None:
        """EC2 doesn't show their instances any more; they run, and the load balancer calls them healthy."""
        for id_ in replicas:
            instance_id = instance_of(rows(self.world).replicas[id_])
            self.hidden[instance_id] = self.world.fleet.instances.pop(instance_id)

    def show(self) -> None:
        """EC2 shows all instances again."""
        self.world.fleet.instances.update(self.hidden)
        self.hidden.clear()

    def tick(self, override: Override | None = None) -> None:
        """The next tick."""
        self.world.clock.advance(timing.TICK_IN_TRANSITION_S)
        self.controller.tick("demo", override=override)

    def word(self) -> Override:
        """An operator looks now, and says that what is held back is true."""
        return word(self.world)

    @property
    def held(self) -> list[str]:
        """What is held back, on record."""
        return [one.what for one in rows(self.world).held.back]

    @property
    def counted(self) -> list[int]:
        """The replicas that count."""
        return counted(self.world)

    def answer(self, override: Override) -> Answer:
        """What became of the override, as its giver is told."""
        answer = rows(self.world).held.answer
        assert answer is not None
        assert answer.given_at == override.given_at
        return answer


@pytest.fixture
def case() -> Case:
    """Three replicas that serve."""
    return Case(*serving())


@pytest.fixture
def given(case: Case) -> Override:
    """One of them isn't shown, and an operator has just said that this is right."""
    case.hide(1)
    case.tick()
    return case.word()


def test_what_was_shown_is_carried_out(case: Case, given: Override) -> None:
    """The replica that the operator was shown goes, whoever gave the word is told, and it is held no more."""
    (shown,) = given.held
    assert (shown.what, shown.why) == (
        "replica 1 is kept",
        f"EC2 doesn't show {instance_of(rows(case.world).replicas[1])}, and it answers its checks",
    )
    case.tick(given)
    assert case.counted == [2, 3, 4]
    assert rows(case.world).held == Held(
        (), Answer(given.given_at or case.world.clock.now(), ("replica 1 is kept",))
    )
    assert recorded(case.world, "overridden")
    assert not recorded(case.world, "override_lapsed")


def one_more(case: Case) -> None:
    """Another replica isn't shown either."""
    case.hide(2)


def all_of_them(case: Case) -> None:
    """EC2 answers with nothing."""
    case.hide(2, 3)


def another(case: Case) -> None:
    """That one is shown again, and another one isn't."""
    case.show()
    case.hide(2)


def another_reason(case: Case) -> None:
    """The load balancer doesn't call them healthy, and two of three aren't shown: too many to be true."""
    case.hide(2)
    targets = case.world.router.groups[demo_spec().target_group_arn]
    targets |= dict.fromkeys(list(targets)[:2], TargetState.UNHEALTHY)


def no_document(case: Case) -> None:
    """The service's document is missing as well."""
    del case.world.services.specs["demo"]


def another_target_group(case: Case) -> None:
    """The document names another target group as well."""
    case.world.services.specs["demo"] = replace(demo_spec(), target_group_arn="arn:elsewhere")


@pytest.mark.parametrize(
    "change",
    [one_more, all_of_them, another, another_reason, no_document, another_target_group],
)
def test_what_wasnt_shown_makes_it_lapse(case: Case, given: Override, change: Callable[[Case], None]) -> None:
    """Something else is held back, or more: then nothing is carried out, and its giver is told."""
    change(case)
    case.tick(given)
    assert case.counted == [1, 2, 3]
    assert rows(case.world).removal.told_at is None
    answer = case.answer(given)
    assert not answer.done
    assert answer.lapsed.startswith("it wasn't given for this: ")
    assert case.held
    assert [line["why"] for line in recorded(case.world, "override_lapsed")] == [answer.lapsed]
    assert not recorded(case.world, "overridden")


def test_what_is_left_of_it_is_carried_out(case: Case) -> None:
    """Of two that were shown one has come back: the other one goes."""
    case.hide(1, 2)
    case.tick()
    given = case.word()
    case.show()
    case.hide(2)
    case.tick(given)
    assert case.counted == [1, 3, 4]
    assert case.answer(given).done == ("replica 2 is kept",)


def test_it_lapses_with_the_matter(case: Case, given: Override) -> None:
    """The instance was shown in between: that it isn't now is another matter, which looks the same."""
    case.show()
    case.tick()
    assert rows(case.world).held == Held()
    case.hide(1)
    case.tick()
    (again,) = rows(case.world).held.back
    assert replace(again, since=next(iter(given.held)).since) in given.held
    case.tick(given)
    assert case.counted == [1, 2, 3]
    assert case.answer(given).lapsed


def test_it_needs_what_is_on_record(case: Case, given: Override) -> None:
    """The first tick that holds something back carries out no override of it: nobody was shown it before."""
    case.show()
    case.tick()
    case.hide(1)
    case.tick(given)
    assert case.counted == [1, 2, 3]


def test_where_nothing_is_held_back_it_does_nothing(case: Case, given: Override) -> None:
    """The instance is shown again: the override comes too late, and its giver is told."""
    case.show()
    case.tick(given)
    assert case.counted == [1, 2, 3]
    assert case.answer(given) == Answer(
        given.given_at or case.world.clock.now(), (), "nothing is held back any more"
    )


def test_an_override_of_before_carries_out_nothing(case: Case, given: Override) -> None:
    """A command of before 2026-11-24 doesn't say what it was given for: everything is held back as before."""
    case.tick(Override())
    assert case.counted == [1, 2, 3]
    assert case.held == ["replica 1 is kept"]
    (line,) = recorded(case.world, "override_lapsed")
    assert "doesn't say what it is given for" in line["why"]
    assert line["remedy"] == "look again: spotrelay override demo"


def test_the_record_is_written_when_it_changes(case: Case, given: Override) -> None:
    """What goes on being held back, or isn't, costs no write; a change costs one."""
    since = rows(case.world).held
    case.world.calls.clear()
    for _ in range(3):
        case.tick()
    assert WRITES not in case.world.calls
    assert rows(case.world).held == since
    case.show()
    for _ in range(3):
        case.tick()
    assert case.world.calls.count(WRITES) == 1
    assert case.held == []


def test_what_has_a_remedy_of_its_own_is_not_on_record(case: Case, given: Override) -> None:
    """What no override lets go on is for no override to show: a foreign instance stays what it is."""
    ours = next(iter(case.world.fleet.instances.values()))
    case.world.fleet.instances["i-foreign"] = replace(ours, id="i-foreign", launch_template_id="lt-other")
    case.world.fleet.services["i-foreign"] = "demo"
    case.world.clock.advance(timing.ORPHAN_GRACE_S)
    case.tick()
    assert any("i-foreign" in line["what"] for line in recorded(case.world, "held_back"))
    assert case.held == ["replica 1 is kept"]
    case.tick(given)
    assert case.counted == [2, 3, 4]


@pytest.mark.parametrize("error", [Throttled("slow"), Denied("no"), Unavailable("?")])
def test_a_record_that_fails_costs_nothing_else(case: Case, given: Override, error: PortError) -> None:
    """If it can't be written, the override is carried out all the same, and the next tick writes it."""
    case.world.refuse(WRITES, error)
    case.tick(given)
    assert case.counted == [2, 3, 4]
    assert case.held == ["replica 1 is kept"]
    case.tick()
    assert case.held == []


def test_an_override_that_failed_finds_what_it_was_given_for(case: Case, given: Override) -> None:
    """A lost race makes the message come again, and it is carried out then."""
    case.world.refuse("store.commit", Unavailable("no answer"))
    with pytest.raises(Unavailable):
        case.tick(given)
    assert case.counted == [1, 2, 3]
    case.tick(given)
    assert case.counted == [2, 3, 4]


def test_a_second_delivery_does_nothing(case: Case, given: Override) -> None:
    """SQS may bring it twice: by then another one isn't shown, and stays."""
    case.tick(given)
    settle(case.world, case.controller)
    case.hide(2)
    case.tick()
    case.tick(given)
    assert case.counted == [2, 3, 4]


def test_what_lapsed_once_has_lapsed(case: Case, given: Override) -> None:
    """Its message comes again, when only what it was given for is held back: it was answered."""
    case.hide(2)
    case.tick(given)
    answer = case.answer(given)
    case.show()
    case.hide(1)
    case.tick(given)
    assert case.counted == [1, 2, 3]
    assert case.answer(given) == answer


def test_each_is_held_back_since_its_own_time(case: Case, given: Override) -> None:
    """What comes to be held back beside something else is new, and that stays as old as it is."""
    case.hide(2)
    case.tick()
    first, second = rows(case.world).held.back
    assert {first} == given.held
    assert second.since == case.world.clock.now() > first.since


def test_a_missing_document_is_shown_and_ends_the_service(case: Case) -> None:
    """What happens to the service is what the operator was shown; its signs are counted from then on."""
    del case.world.services.specs["demo"]
    case.tick()
    (shown,) = rows(case.world).held.back
    assert "drained and ended" in shown.then
    given = case.word()
    case.tick(given)
    assert case.answer(given).done == ("its replicas are kept",)
    assert rows(case.world).removal.told_at == case.world.clock.now()
    for _ in range(40):
        case.tick()
        case.world.router.pass_checks()
    assert not alive(case.world)
    assert rows(case.world).held == Held()


def test_a_document_that_went_on_is_not_this_one(case: Case) -> None:
    """The target group that was shown isn't the one that is deployed by now."""
    another_target_group(case)
    case.tick()
    given = case.word()
    case.world.services.specs["demo"] = replace(demo_spec(), target_group_arn="arn:yet-another")
    case.tick(given)
    assert rows(case.world).document == demo_spec()
    assert "arn:yet-another" in case.answer(given).lapsed


def test_what_is_held_back_counts_as_before(case: Case, given: Override) -> None:
    """A lapsed override is one more tick that holds back: `HeldBack` counts, and its alarm stays."""
    before = case.world.telemetry.counts[Metric.HELD_BACK]
    one_more(case)
    case.tick(given)
    assert case.world.telemetry.counts[Metric.HELD_BACK] == before + 2


def test_a_lost_race_is_no_reason_to_forget(case: Case, given: Override) -> None:
    """Somebody else changed the row meanwhile: the override comes again, as nobody says it twice."""
    case.world.refuse("store.commit", Conflict("somebody else was faster"))
    case.tick(given)
    assert case.world.ticker.overrides == [("demo", given, timing.OVERRIDE_AGAIN_S[0])]
    assert case.held == ["replica 1 is kept"]
    case.tick(given)
    assert case.counted == [2, 3, 4]
    assert case.answer(given).done == ("replica 1 is kept",)


def test_what_lapsed_does_not_come_again(case: Case, given: Override) -> None:
    """Nothing of it was carried out, so a tick that loses a race over something else loses nothing of it."""
    one_more(case)
    case.world.fleet.enter(InstanceState.TERMINATED, [instance_of(rows(case.world).replicas[3])])
    case.world.refuse("store.commit", Conflict("somebody else was faster"))
    case.tick(given)
    assert case.world.ticker.overrides == []
    assert case.answer(given).lapsed
