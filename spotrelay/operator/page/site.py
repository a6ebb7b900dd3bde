"""The page as an ASGI application, for browsers of this machine that know its address.

It runs no inline script, and answers GET, and one POST: a trial, from this very page. Nothing writes to AWS.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spotrelay.messages import harmless
from spotrelay.operator.look.curves import bounds, spread
from spotrelay.operator.look.explain import explain
from spotrelay.operator.look.history import History, history
from spotrelay.operator.look.progress import Progress, progress
from spotrelay.operator.look.scores import why_none
from spotrelay.operator.look.timeline import NARROW, WIDE, Layout
from spotrelay.operator.page import trial
from spotrelay.operator.page.graphs import graphs
from spotrelay.operator.page.picture import last_hour
from spotrelay.operator.page.poller import PRICES, Details, Fleet, Poller, Seen, Served, Unreadable
from spotrelay.operator.page.runbook import runbook
from spotrelay.operator.request import Entrance, of_probe
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.slots import host
from spotrelay.plane.core.spec import OnUpdate
from spotrelay.plane.view.cells import price_of, successor_of
from spotrelay.plane.view.losses import Loss
from spotrelay.plane.view.palette import style_sheet
from spotrelay.plane.view.snapshot import Alarm, AlarmState, ServiceSnapshot
from spotrelay.plane.view.status import RECENT, Status, status
from spotrelay.plane.view.words import clock, duration, percent, usd

STATIC = Path(__file__).parent / "static"

HOSTS = ("127.0.0.1", "localhost")
"""Under another name, a foreign page's script could read this one: it has its own name point here."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

SCORE_SAMPLES = 48
"""Of a zone's line: the hours of two days."""

MOST_POOLS = 8
"""In the chart of prices, and in its table: the cheapest. More lines than colours can't be told apart."""

NUMBER = 0.07
"""Of the chart's axis: the height of a line's number, in the size in which page.js writes it."""

FIRST_LOOK_S = 3.0
"""So long a page waits for the first look at what it shows, to come with it."""

POLL_S = 0.05

OLD_S = 10.0
"""Data older than this is called so: some looks failed, or take long."""


MOST_TRIALS = 4
"""At a time: more would be load. Each of these costs a replica's time."""

MOST_FORM = 2 * trial.MOST_SENT
"""Bytes: JSON doubles quotes and new lines."""


@dataclass(frozen=True, slots=True)
class ServiceView:
    """What a page shows of one service, worked out of what was seen."""

    name: str
    status: Status | None = None
    history: History | None = None
    timeline: Markup | None = None
    """The drawing of the last hour, for a screen; then for a phone that is held upright."""
    narrow_timeline: Markup | None = None
    details: Details | None = None
    served: Served | None = None
    snapshot: ServiceSnapshot | None = None
    problem: str | None = None
    age_s: float = 0.0

    @property
    def is_old(self) -> bool:
        """Whether what is shown may have changed since."""
        return self.problem is not None or self.age_s > OLD_S

    @property
    def tone(self) -> str:
        """How the judgement looks."""
        return "unknown" if self.status is None or self.is_old else self.status.tone

    @property
    def ringing(self) -> tuple[Alarm, ...]:
        """The alarms that ring. What each says begins with a command to run, and names its section."""
        alarms = self.snapshot.alarms if self.snapshot else ()
        return tuple(alarm for alarm in alarms if alarm.state is AlarmState.ALARM)

    @property
    def rollout(self) -> Progress | None:
        """How far a roll-out is; None: none is under way."""
        seen = self.snapshot
        if seen is None or seen.spec is None or seen.spec.on_update is OnUpdate.KEEP:
            return None
        found = progress(seen, seen.within(RECENT))
        return found if found and found.before else None

    def felt(self, loss: Loss) -> int | None:
        """Answers of 5xx that it cost; None until they were counted after its end."""
        if self.history is None or self.details is None or self.details.at < (loss.whole_at or loss.at):
            return None
        return self.history.felt(loss)


@dataclass(frozen=True, slots=True)
class Sums:
    """Of all services of which something is known."""

    services: int
    not_whole: int
    ready: int
    desired: int
    on_demand: int
    usd_per_hour: float | None
    """None: a price isn't known."""
    lost: int
    alarms: int | None
    """Those that ring; None: some couldn't be read."""


def sums(found: Sequence[Status]) -> Sums | None:
    """None: nothing is known of any."""
    if not found:
        return None
    usd_, ringing = [one.usd_per_hour for one in found], [one.alarms for one in found]
    return Sums(
        services=len(found),
        not_whole=sum(not one.is_whole for one in found),
        ready=sum(one.ready for one in found),
        desired=sum(one.desired or 0 for one in found),
        on_demand=sum(one.on_demand for one in found),
        usd_per_hour=None if None in usd_ else sum(each or 0.0 for each in usd_),
        lost=sum(one.lost for one in found),
        alarms=None if None in ringing else sum(len(each or ()) for each in ringing),
    )


def view(name: str, seen: Seen, now: datetime, *, whole: bool = True) -> ServiceView:
    """`whole`: with history and timeline."""
    snapshot = seen.snapshot
    if snapshot is None:
        return ServiceView(name, problem=seen.problem)
    errors = seen.details.errors if seen.details else None
    return ServiceView(
        name,
        status(snapshot),
        history(snapshot, snapshot.within(RECENT), errors) if whole else None,
        _drawn(snapshot, WIDE) if whole else None,
        _drawn(snapshot, NARROW) if whole else None,
        seen.details,
        seen.served,
        snapshot,
        seen.problem,
        max((now - snapshot.at).total_seconds(), 0.0),
    )


def _drawn(snapshot: ServiceSnapshot, layout: Layout) -> Markup:
    return Markup(last_hour(snapshot, layout))  # noqa: S704  # ElementTree has escaped it


class Site:
    """The pages of a poller's services. `only`: the service that the command named."""

    def __init__(
        self,
        poller: Poller,
        region: str,
        only: str | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        first_look_s: float = FIRST_LOOK_S,
        via: Callable[[Entrance], str | None] = lambda _: None,
    ) -> None:
        self.token = secrets.token_urlsafe()
        """What each address begins with. Other users of the machine can reach the port, and don't know it."""
        self._poller = poller
        self._region = region
        self._only = only
        self._now = now
        self._first_look_s = first_look_s
        self._via = via
        self._trials = threading.BoundedSemaphore(MOST_TRIALS)
        self._templates = Environment(
            loader=PackageLoader("spotrelay.operator.page"), autoescape=True, undefined=StrictUndefined
        )
        self._templates.filters |= {
            "duration": duration,
            "usd": usd,
            "percent": percent,
            "clock": clock,
            "price_of": price_of,
            "successor_of": successor_of,
            "why_none": why_none,
            "of_probe": of_probe,
            "graphs": graphs,
            "host": host,
            "instance_link": instance_link,
        }
        self._templates.globals |= {
            "PRICES": PRICES,
            "MOST_POOLS": MOST_POOLS,
            "SCORES": SCORE_SAMPLES,
            "AT": f"/{self.token}",
        }

    def app(self) -> ASGIApp:
        """The application."""
        return Starlette(
            routes=[
                Route("/", self._fleet),
                Route("/fleet", self._fleet_fragment),
                Route("/services/{name}", self._service),
                Route("/services/{name}/now", self._now_fragment),
                Route("/services/{name}/details", self._details_fragment),
                Route("/services/{name}/prices", self._prices),
                Route("/services/{name}/replicas/{id:int}", self._replica),
                Route("/services/{name}/replicas/{id:int}/now", self._replica_fragment),
                Route("/services/{name}/replicas/{id:int}/console", self._console),
                Route("/runbook", self._runbook),
                Route("/services/{name}/try", self._try_fragment),
                Route("/services/{name}/try", self._try, methods=["POST"]),
                Route("/palette.css", self._palette),
                Mount("/static", StaticFiles(directory=STATIC)),
            ],
            middleware=[
                Middleware(_Headers),
                Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS)),
                Middleware(_Token, token=self.token),
            ],
        )

    async def _fleet(self, _: Request) -> Response:
        if self._only:
            return RedirectResponse(f"/{self.token}/services/{self._only}")
        await self._first_look(None)
        return self._html("fleet.html", **self._of_fleet())

    async def _fleet_fragment(self, _: Request) -> Response:
        return self._html("fleet-now.html", **self._of_fleet())

    async def _service(self, request: Request) -> Response:
        await self._first_look(request.path_params["name"])
        return self._html("service.html", **self._of_service(request))

    async def _now_fragment(self, request: Request) -> Response:
        return self._html("service-now.html", **self._of_service(request))

    async def _details_fragment(self, request: Request) -> Response:
        return self._html("service-details.html", **self._of_service(request))

    async def _prices(self, request: Request) -> Response:
        name = request.path_params["name"]
        seen = self._poller.fleet(name).services.get(name, Seen())
        now = self._now()
        return JSONResponse(chart(seen.details, now) if seen.details else None)

    async def _palette(self, _: Request) -> Response:
        return Response(style_sheet(), media_type="text/css")

    async def _replica(self, request: Request) -> Response:
        await self._first_look(request.path_params["name"])
        return self._html("replica.html", **self._of_replica(request))

    async def _replica_fragment(self, request: Request) -> Response:
        return self._html("replica-now.html", **self._of_replica(request))

    async def _console(self, request: Request) -> Response:
        name = request.path_params["name"]
        snapshot = self._poller.fleet(name).services.get(name, Seen()).snapshot
        replica = snapshot.replicas.get(request.path_params["id"]) if snapshot else None
        output, problem = "", None
        if replica and replica.instance_id:
            try:
                output = harmless(await run_in_threadpool(self._poller.console, host(replica.instance_id)))
            except Unreadable as error:
                problem = str(error)
        return self._html("replica-console.html", output=output, problem=problem)

    async def _runbook(self, _: Request) -> Response:
        return self._html("runbook.html", region=self._region, only=self._only, runbook=runbook())

    def _of_replica(self, request: Request) -> dict[str, Any]:
        name, id_ = request.path_params["name"], request.path_params["id"]
        fleet = self._poller.fleet(name)
        found = view(name, fleet.services.get(name, Seen()), self._now(), whole=False)
        seen = found.snapshot
        story = explain(seen, id_, None) if seen else None
        # What it cost takes the prices of all its time: the command asks for them.
        lines = tuple(line for line in story.lines if not line[0].startswith("cost")) if story else ()
        return {
            **self._common(fleet),
            "view": found,
            "id": id_,
            "replica": seen.replicas.get(id_) if seen else None,
            "story": story and replace(story, lines=lines),
        }

    async def _try_fragment(self, request: Request) -> Response:
        return self._html("service-try.html", **self._of_service(request))

    async def _try(self, request: Request) -> Response:
        if not _is_of_this_page(request):
            return _refused(403, "this isn't the page's own form")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_FORM:
                return _refused(413, "that is too much to send")
        seen = self._poller.fleet(request.path_params["name"]).services.get(request.path_params["name"])
        snapshot = seen and seen.snapshot
        if not snapshot or not snapshot.spec or not snapshot.address:
            return _refused(409, "the service's address isn't known")
        try:
            form = json.loads(body)
            asked = trial.asked(snapshot.spec, form)
        except trial.BadTrialError as error:
            return _refused(400, str(error))
        except (ValueError, AttributeError, RecursionError):
            return _refused(400, "not a trial's form")
        via = self._via(Entrance.at(snapshot.address))
        events = self._one_of_few(trial.events(snapshot, asked, form.get("key", ""), via))
        return StreamingResponse(_lines(events), media_type="application/x-ndjson")

    def _one_of_few(
        self, events: Generator[dict[str, Any], None, None]
    ) -> Generator[dict[str, Any], None, None]:
        if not self._trials.acquire(blocking=False):
            yield {"pieces": 0, "problem": f"{MOST_TRIALS} requests are under way: stop one of them"}
            return
        try:
            yield from events
        finally:
            self._trials.release()

    async def _first_look(self, name: str | None) -> None:
        for _ in range(round(self._first_look_s / POLL_S)):
            fleet = self._poller.fleet(name)
            wanted = [name] if name else fleet.names
            if fleet.problem or (
                fleet.names is not None
                and all(n not in fleet.names or n in fleet.services for n in wanted or ())
            ):
                return
            await asyncio.sleep(POLL_S)

    def _of_fleet(self) -> dict[str, Any]:
        fleet = self._poller.fleet()
        views = [view(n, fleet.services.get(n, Seen()), self._now(), whole=False) for n in fleet.names or ()]
        found = [one.status for one in views if one.status]
        return {**self._common(fleet), "views": views, "sums": sums(found)}

    def _of_service(self, request: Request) -> dict[str, Any]:
        name = request.path_params["name"]
        fleet = self._poller.fleet(name)
        return {**self._common(fleet), "view": view(name, fleet.services.get(name, Seen()), self._now())}

    def _common(self, fleet: Fleet) -> dict[str, Any]:
        return {"fleet": fleet, "region": self._region, "only": self._only, "now": self._now()}

    def _html(self, template: str, **values: Any) -> HTMLResponse:
        return HTMLResponse(self._templates.get_template(template).render(**values))


def chart(details: Details, now: datetime) -> dict[str, Any]:
    """What uPlot draws: times, for each pool the price that it had then, and where the line's number goes."""
    start, curves = now - PRICES, details.curves[:MOST_POOLS]
    times = sorted({start, now, *(at for curve in curves for at, _ in curve.changes if at > start)})
    least, most = bounds(curves) if curves else (0.0, 1.0)
    places = spread([curve.now for curve in curves], least, most, NUMBER * (most - least))
    return {
        "times": [at.timestamp() for at in times],
        "bounds": [least, most],
        "pools": [
            {
                "name": str(curve.pool),
                "usd": [curve.at(at) for at in times],
                "on_demand_usd": curve.on_demand_usd,
                "number_at": place,
            }
            for curve, place in zip(curves, places, strict=True)
        ],
    }


def _is_of_this_page(request: Request) -> bool:
    """Whether a script of this page sent it: a browser says whose page a script is of.

    `Host` and the address's token are checked before.
    """
    headers = request.headers
    return (
        headers.get("origin") == f"http://{headers.get('host')}"
        and headers.get("sec-fetch-site", "same-origin") == "same-origin"
        and headers.get("content-type") == "application/json"
    )


def _refused(status: int, problem: str) -> JSONResponse:
    return JSONResponse({"problem": problem}, status)


async def _lines(events: Generator[dict[str, Any], None, None]) -> AsyncIterator[str]:
    """Each event as a line of JSON. A thread waits for them, which Ctrl-C doesn't wait for."""
    loop = asyncio.get_running_loop()
    told = asyncio.Queue[dict[str, Any] | None]()
    is_over = threading.Event()

    def wait() -> None:
        with suppress(RuntimeError), closing(events):  # the loop has ended
            try:
                for event in events:
                    if is_over.is_set():
                        break
                    loop.call_soon_threadsafe(told.put_nowait, event)
            finally:
                loop.call_soon_threadsafe(told.put_nowait, None)

    threading.Thread(target=wait, daemon=True).start()
    try:
        while (event := await told.get()) is not None:
            yield json.dumps(event) + "\n"
    finally:
        is_over.set()


def instance_link(replica: Replica, region: str) -> str:
    """The instance's page in AWS's console."""
    id_ = host(replica.instance_id or "")
    return (
        f"https://{region}.console.aws.amazon.com/ec2/home?region={region}#InstanceDetails:instanceId={id_}"
    )


class _Headers:
    """Puts the headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI has it."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, with_headers)


class _Token:
    """Lets through what begins with the token, without it."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI has it."""
        if scope["type"] == "http":
            told, _, path = scope["path"].removeprefix("/").partition("/")
            if not secrets.compare_digest(told.encode(), self._token.encode()):
                answer = PlainTextResponse("Open the address that `spotrelay ui` has printed.\n", 403)
                await answer(scope, receive, send)
                return
            scope = {**scope, "path": f"/{path}"}
        await self._app(scope, receive, send)
