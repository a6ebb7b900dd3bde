"""`ports.Beside`."""

from __future__ import annotations

import threading

import pytest

from spotrelay.aws.beside import Thread
from spotrelay.memory import in_turn
from spotrelay.ports import Beside, Throttled

PATIENCE_S = 10.0
"""How long one side waits for the other before the test fails."""


@pytest.fixture(params=["memory", "aws"])
def beside(request: pytest.FixtureRequest) -> Beside:
    """It, either way."""
    return in_turn if request.param == "memory" else Thread()


def test_the_block_gets_the_answer(beside: Beside) -> None:
    """What was begun answers as often as it is asked, is done once, and another may follow it."""
    done: list[int] = []

    def act() -> int:
        done.append(len(done))
        return len(done)

    for n in (1, 2):
        with beside(act) as answer:
            assert (answer(), answer()) == (n, n)
    assert done == [0, 1]


def test_an_error_is_raised_when_asked(beside: Beside) -> None:
    """A failure is the block's to meet, where it asks; who doesn't ask goes on, and so does the next."""

    def fail() -> int:
        raise Throttled("slow down")

    with beside(fail) as answer:
        for _ in range(2):
            with pytest.raises(Throttled, match="slow down"):
                answer()
    with beside(fail):
        pass
    with beside(lambda: 7) as answer:
        assert answer() == 7


def test_a_mistake_of_ours_gets_out(beside: Beside) -> None:
    """An error that nobody expects reaches whoever asks, at the latest then."""

    def fail() -> int:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"), beside(fail) as answer:
        answer()


def test_it_is_through_after_the_block(beside: Beside) -> None:
    """Nothing is left under way, whether the block asked or raised; the block's own error gets out."""
    done: list[str] = []
    with beside(lambda: done.append("unasked")):
        pass
    assert done == ["unasked"]
    with pytest.raises(KeyError, match="block"), beside(lambda: done.append("raised")):
        raise KeyError("block")
    assert done == ["unasked", "raised"]


def test_a_thread_overlaps_with_the_block() -> None:
    """Each side waits for the other: only if both run at once do they come through."""
    begun, met = threading.Event(), threading.Event()

    def act() -> bool:
        begun.set()
        return met.wait(PATIENCE_S)

    with Thread()(act) as answer:
        assert begun.wait(PATIENCE_S)
        met.set()
        assert answer()


def test_a_thread_lets_the_block_begin() -> None:
    """What the block is about to do is under way before what is done beside it."""
    under_way, order = threading.Event(), list[str]()

    def sleep(_: float) -> None:
        under_way.wait(PATIENCE_S)

    with Thread(sleep)(lambda: order.append("beside")) as answer:
        order.append("block")
        under_way.set()
        answer()
    assert order == ["block", "beside"]


def test_a_thread_is_waited_for() -> None:
    """What can't end before the block does has ended after it, even if the block raises and never asks."""
    leaving, done = threading.Event(), threading.Event()

    def act() -> None:
        if leaving.wait(PATIENCE_S):
            done.set()

    def leave() -> None:
        leaving.set()
        raise KeyError("block")

    with pytest.raises(KeyError, match="block"), Thread()(act):
        leave()
    assert done.is_set()
