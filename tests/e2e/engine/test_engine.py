"""Replicas of a real engine come and go under OpenAI's own client: nobody gets an error."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from spotrelay.operator.cli.drill import RECENT_S
from tests.e2e.faults.bench import Bench
from tests.e2e.stand import WITHIN_S
from tests.e2e.test_drill import started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(8 * WITHIN_S)]

HELLO: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "hello"}]

LONGEST = 400
"""Tokens: an eighth of a second where a processor is free. Short and long ones are asked for."""

CLIENTS = 6

PAUSE_S = 2.0
"""Between two requests of a client: without it six keep all processors of a small machine busy."""


class Users:
    """Some stream, some don't, and some go away in the middle.

    Their client repeats what fails, as OpenAI's does by itself: the engine closes idle connections after five
    seconds, so that now and then a request meets one that is just being closed, and gets 502.
    """

    def __init__(self, bench: Bench) -> None:
        self.answers: Counter[str] = Counter()
        self.errors: list[str] = []
        self._client = openai.OpenAI(
            base_url=f"{bench.cloud.endpoint}/v1",
            api_key="none",
            timeout=WITHIN_S,
            default_headers={"Host": bench.operator.deployment.hosts["engine"]},
        )
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(CLIENTS)]

    def _ask(self, number: int) -> None:
        drawn = random.Random(number)  # noqa: S311 - a load, no secret
        while not self._stop.is_set():
            kind = ("whole", "streamed", "left")[number % 3]
            try:
                self._one(kind, drawn.randrange(1, LONGEST))
            except Exception as error:  # noqa: BLE001 - whatever a user would have seen
                self.errors.append(f"{kind}: {error!r}")
            else:
                self.answers[kind] += 1
            self._stop.wait(PAUSE_S)

    def _one(self, kind: str, tokens: int) -> None:
        create, more = self._client.chat.completions.create, {"ignore_eos": True}
        if kind == "whole":
            said = create(model="tiny", messages=HELLO, max_tokens=tokens, extra_body=more)
            assert said.choices[0].finish_reason == "length"
            return
        pieces = create(model="tiny", messages=HELLO, max_tokens=tokens, extra_body=more, stream=True)
        ends = []
        for count, piece in enumerate(pieces):
            ends.append(piece.choices[0].finish_reason)
            if kind == "left" and count > 3:
                pieces.close()
                return
        assert ends[-1] == "length"

    def until(self, more: int) -> None:
        """Wait for so many more answers of each kind."""
        goal = self.answers.copy()
        deadline = time.monotonic() + WITHIN_S
        while any(self.answers[kind] < goal[kind] + more for kind in ("whole", "streamed", "left")):
            assert time.monotonic() < deadline, (self.answers, self.errors[:5])
            time.sleep(0.1)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.until(2)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(WITHIN_S)


@contextmanager
def used(bench: Bench) -> Iterator[Users]:
    """Somebody uses the service meanwhile. Fails if anybody got an error."""
    with Users(bench) as users:
        yield users
        users.until(5)
    assert users.errors == [], "\n".join(map(str, _failed(bench)))


def _failed(bench: Bench) -> Sequence[Mapping[str, Any]]:
    """What the load balancer's own log has of requests that failed."""
    requests = bench.cloud.requests(bench.balancer()["LoadBalancerName"])
    return [r for r in requests if r["error"] or r["status"] >= 500][-5:]


def replaced(engine: Bench, first: Sequence[int]) -> None:
    """Wait until three others serve; those that EC2 takes may still be there."""
    engine.watch.until(
        lambda seen: sum(r.stays and r.id not in first for r in seen.ready) == 3, "three others", WITHIN_S
    )


def test_a_drill_of_it_leaves_no_gap(engine: Bench) -> None:
    """The operator's own rehearsal, with users there. What the engine cuts by itself is in its verdict.

    It comes first: it refuses what isn't whole, and after the others that takes EC2's two minutes.
    """
    engine.cloud.age_metrics(2 * RECENT_S)
    with used(engine):
        output, _ = started(engine, "drill", "--yes", "--json").communicate(timeout=3 * WITHIN_S)
    told = json.loads(output)
    (loss,) = told["losses"]
    assert (told["outage_s"], loss["replaced_by"] > loss["replica"]) == (0, True)
    assert [one for one in told["problems"] if "request" not in one] == []


def test_every_replica_is_taken_away_and_nobody_notices(engine: Bench) -> None:
    """Warned one after the other, each is replaced by a start of the engine."""
    with used(engine) as users:
        first = [r.id for r in engine.watch.look().ready]
        for id_ in first:
            engine.warn(engine.watch.look().replicas[id_])
            users.until(3)
        replaced(engine, first)


def test_all_of_them_at_once(engine: Bench) -> None:
    """They serve on until others are ready: the engine takes seconds to load."""
    with used(engine):
        first = engine.watch.look().ready
        for replica in first:
            engine.warn(replica)
        replaced(engine, [r.id for r in first])
