"""Asks AWS, once for all browsers, and only while one is open.

There are two threads. One looks at the fleet every second. The other asks for what takes longer and
changes slowly (prices, cost, scores, errors), every five minutes. Both publish values that never change.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from spotrelay.operator.look.cost import Cost
from spotrelay.operator.look.curves import Curve
from spotrelay.operator.look.scores import ZoneScores
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.view.snapshot import Minute, Part, ServiceSnapshot

LOOK_S = 1.0
"""Between looks at the fleet: with the browser's two seconds, what is in the rows is shown within five."""

FACTS_KEPT_S = 30.0
"""For so long a service's alarms and the names of all services count: they change rarely."""

DETAILS_S = 300.0
"""Between questions for prices and cost: EC2's prices change a few times a day."""

SERVED_S = 60.0
"""Between questions for requests, errors and latency: what CloudWatch counts, it counts by the minute."""

HOUR = timedelta(hours=1)

ASKED_FOR_S = 15.0
"""A service that no browser has asked for in so long is left alone. A background tab asks each minute at
least, and gets data that is as old."""

PRICES = timedelta(hours=48)
COST_DAYS = 7


@dataclass(frozen=True, slots=True)
class Details:
    """What is asked for every five minutes."""

    at: datetime
    curves: tuple[Curve, ...] = ()
    scores: tuple[ZoneScores, ...] = ()
    cost: Cost | None = None
    errors: Mapping[datetime, int] | None = None
    """Answers of 5xx, by minute."""
    problems: tuple[str, ...] = ()
    """What couldn't be read, and why. An earlier answer stands in its place, if there was one."""


@dataclass(frozen=True, slots=True)
class Served:
    """What clients met in the last hour. It is asked for every minute: CloudWatch knows no more."""

    at: datetime
    minutes: tuple[Minute, ...] | None = ()
    """None: nobody counts them, because the load balancer isn't known."""
    problem: str | None = None
    """Why they couldn't be read; then `minutes` are as they were before."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of one service."""

    snapshot: ServiceSnapshot | None = None
    """The last whose rows could be read; without any, the last; None: nobody has looked yet."""
    details: Details | None = None
    served: Served | None = None
    problem: str | None = None
    """Why the last look failed; then `snapshot` is older."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """All services, as last seen."""

    names: tuple[str, ...] | None = None
    """None: nobody has looked yet."""
    services: Mapping[str, Seen] = field(default_factory=dict)
    problem: str | None = None
    """Why the names of the services couldn't be read."""


class Unreadable(Exception):  # noqa: N818 - what AWS doesn't say, for people
    """AWS can't be asked: why, in one line."""


class Source(Protocol):
    """What the poller asks."""

    def names(self) -> Collection[str]:
        """The services that there are."""
        ...

    def look(self, service: str, now: datetime, earlier: ServiceSnapshot | None) -> ServiceSnapshot:
        """The service as it is now, with what `earlier` had if a part can't be read."""
        ...

    def details(self, service: str, now: datetime, before: Details | None) -> Details:
        """What is asked for every five minutes; what fails is as it was `before`."""
        ...

    def served(self, spec: ServiceSpec, since: datetime, now: datetime) -> tuple[Minute, ...] | None:
        """What the load balancer counted, minute by minute; None if the document names no load balancer."""
        ...

    def console(self, instance_id: str) -> str:
        """What the instance wrote to its console. Any thread may ask."""
        ...


class Poller:
    """Looks at the services that a browser shows. `explain` puts an error into one line; None means a bug."""

    def __init__(
        self,
        source: Source,
        explain: Callable[[Exception], str | None],
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._source = source
        self._explain = explain
        self._monotonic_s = monotonic_s
        self._now = now
        self._lock = threading.Lock()
        self._fleet = Fleet()
        self._asked_for: dict[str, float] = {}
        self._all_asked_for = -ASKED_FOR_S - 1
        self._names_read = self._details_read = float("-inf")
        self._facts_read: dict[str, float] = {}
        self._details_at: dict[str, float] = {}
        self._served_at: dict[str, float] = {}
        self._asked = threading.Event()
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(step, every_s), daemon=True)
            for step, every_s in ((self.look, LOOK_S), (self.ask, LOOK_S))
        ]

    def __enter__(self) -> Poller:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._asked.set()

    def fleet(self, service: str | None = None) -> Fleet:
        """What is known, without waiting; a browser shows this service, or all of them."""
        with self._lock:
            if service is None:
                self._all_asked_for = self._monotonic_s()
            elif self._fleet.names is None or service in self._fleet.names:
                self._asked_for[service] = self._monotonic_s()
            self._asked.set()
            return self._fleet

    def console(self, instance_id: str) -> str:
        """What the instance wrote to its console, asked now.

        Raises:
            Unreadable: EC2 doesn't say.
        """
        try:
            return self._source.console(instance_id)
        except Exception as error:
            raise Unreadable(self._words(error)) from error

    def look(self) -> None:
        """Look once at every service that a browser shows."""
        if self._wanted() is None:
            return
        self._read_names()
        for name in self._wanted() or ():
            self._look_at(name)

    def ask(self) -> None:
        """Ask for the details of every service that a browser shows, if they are old enough."""
        for name in self._wanted() or ():
            seen = self._fleet.services.get(name)
            if seen is None or seen.snapshot is None:
                continue
            self._ask_what_was_served(name, seen, seen.snapshot.spec)
            if self._details_at.get(name, float("-inf")) + DETAILS_S > self._monotonic_s():
                continue
            self._details_at[name] = self._monotonic_s()
            try:
                details = self._source.details(name, self._now(), seen.details)
            except Exception as error:  # noqa: BLE001  # told on the page; `_words` lets no bug pass in silence
                before = seen.details or Details(self._now())
                details = replace(before, problems=(self._words(error),))
            self._publish(name, details=details)

    def _ask_what_was_served(self, name: str, seen: Seen, spec: ServiceSpec | None) -> None:
        if spec is None or self._served_at.get(name, float("-inf")) + SERVED_S > self._monotonic_s():
            return
        self._served_at[name] = self._monotonic_s()
        now = self._now()
        try:
            served = Served(now, self._source.served(spec, now - HOUR, now))
        except Exception as error:  # noqa: BLE001  # told on the page; `_words` lets no bug pass in silence
            served = replace(seen.served or Served(now), problem=self._words(error))
        self._publish(name, served=served)

    def _run(self, step: Callable[[], None], every_s: float) -> None:
        while not self._is_over.is_set():
            if self._wanted() is None:
                self._asked.wait()
                continue
            began = self._monotonic_s()
            try:
                step()
            except Exception:  # noqa: BLE001  # a thread that dies would leave a page that never changes again
                traceback.print_exc()
            # As long a pause as the looks took: many services don't make a stream of requests.
            self._is_over.wait(max(every_s, self._monotonic_s() - began))

    def _wanted(self) -> Sequence[str] | None:
        """The services that a browser shows; None: there is no browser."""
        with self._lock:
            since = self._monotonic_s() - ASKED_FOR_S
            names = self._fleet.names or ()
            if self._all_asked_for >= since:
                return names
            asked = [name for name, at in self._asked_for.items() if at >= since]
            if not asked:
                self._asked.clear()
                return None
            return [name for name in names if name in asked]

    def _read_names(self) -> None:
        if self._fleet.names is not None and self._names_read + FACTS_KEPT_S > self._monotonic_s():
            return
        self._names_read = self._monotonic_s()
        try:
            found = tuple(sorted(self._source.names()))
        except Exception as error:  # noqa: BLE001  # told on the page; `_words` lets no bug pass in silence
            with self._lock:
                self._fleet = replace(self._fleet, problem=self._words(error))
            self._names_read = float("-inf")
            return
        with self._lock:
            kept = {name: seen for name, seen in self._fleet.services.items() if name in found}
            self._fleet = Fleet(found, kept)

    def _look_at(self, name: str) -> None:
        before = self._fleet.services.get(name, Seen()).snapshot
        are_facts_fresh = self._facts_read.get(name, float("-inf")) + FACTS_KEPT_S > self._monotonic_s()
        try:
            snapshot = self._source.look(name, self._now(), before if are_facts_fresh else None)
        except Exception as error:  # noqa: BLE001  # told on the page; `_words` lets no bug pass in silence
            self._publish(name, problem=self._words(error))
            return
        if Part.ROWS in snapshot.missing and before is not None:
            self._publish(name, problem=snapshot.missing[Part.ROWS])
            return
        if not are_facts_fresh:
            self._facts_read[name] = self._monotonic_s()
        problem = snapshot.missing.get(Part.ROWS)
        self._publish(name, snapshot=snapshot, problem=problem)

    def _publish(
        self,
        name: str,
        *,
        snapshot: ServiceSnapshot | None = None,
        details: Details | None = None,
        served: Served | None = None,
        problem: str | None = None,
    ) -> None:
        with self._lock:
            seen = self._fleet.services.get(name, Seen())
            if details is not None:
                seen = replace(seen, details=details)
            elif served is not None:
                seen = replace(seen, served=served)
            else:
                seen = replace(seen, snapshot=snapshot or seen.snapshot, problem=problem)
            self._fleet = replace(self._fleet, services={**self._fleet.services, name: seen})

    def _words(self, error: Exception) -> str:
        words = self._explain(error)
        if words is None:
            traceback.print_exception(error)
            return f"a bug of SpotRelay's: {type(error).__name__}: {error}"
        return words
