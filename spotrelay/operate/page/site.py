"""The page as an ASGI application. It answers GET only, to browsers of this machine that know its address
only, and runs no inline script."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spotrelay.operate.curves import bounds, spread
from spotrelay.operate.history import History, history
from spotrelay.operate.losses import Loss
from spotrelay.operate.page.picture import last_hour
from spotrelay.operate.page.poller import PRICES, Details, Fleet, Poller, Seen
from spotrelay.operate.scores import why_none
from spotrelay.operate.snapshot import ServiceSnapshot
from spotrelay.operate.status import RECENT, Status, status
from spotrelay.operate.timeline import NARROW, WIDE, Layout
from spotrelay.operate.words import clock, duration, percent, price_of, successor_of, usd

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

    def felt(self, loss: Loss) -> int | None:
        """Answers of 5xx that it cost; None until they were counted after its end."""
        if self.history is None or self.details is None or self.details.at < (loss.whole_at or loss.at):
            return None
        return self.history.felt(loss)


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
    ) -> None:
        self.token = secrets.token_urlsafe()
        """What each address begins with. Other users of the machine can reach the port, and don't know it."""
        self._poller = poller
        self._region = region
        self._only = only
        self._now = now
        self._first_look_s = first_look_s
        self._templates = Environment(
            loader=PackageLoader("spotrelay.operate.page"), autoescape=True, undefined=StrictUndefined
        )
        self._templates.filters |= {
            "duration": duration,
            "usd": usd,
            "percent": percent,
            "clock": clock,
            "price_of": price_of,
            "successor_of": successor_of,
            "why_none": why_none,
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
        return {**self._common(fleet), "views": views}

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


class _Headers:
    """Puts the headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""

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
        """See ASGI."""
        if scope["type"] == "http":
            told, _, path = scope["path"].removeprefix("/").partition("/")
            if not secrets.compare_digest(told.encode(), self._token.encode()):
                answer = PlainTextResponse("Open the address that `spotrelay ui` has printed.\n", 403)
                await answer(scope, receive, send)
                return
            scope = {**scope, "path": f"/{path}"}
        await self._app(scope, receive, send)
