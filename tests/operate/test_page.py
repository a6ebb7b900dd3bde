"""The local page, as an application: who may ask for what, and what comes of hostile or missing data."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spotrelay.operator.cli.ui import forward
from spotrelay.operator.look.curves import Curve
from spotrelay.operator.page import poller as page_poller
from spotrelay.operator.page.graphs import graphs
from spotrelay.operator.page.picture import MOST_ROWS, last_hour
from spotrelay.operator.page.poller import Details, Poller
from spotrelay.operator.page.site import Site, chart, sums
from spotrelay.plane.core import names as core_names
from spotrelay.plane.core.ports import Unavailable
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import OnUpdate, ReadinessProbe, ServiceSpec
from spotrelay.plane.view.snapshot import Alarm, AlarmState, Minute, Part, ServiceSnapshot
from spotrelay.plane.view.status import status
from tests.cli.test_request import CHAT, Server, answering
from tests.examples import demo_spec
from tests.operate.replicas import POOL, START, replica

NOW = START + timedelta(minutes=10)

HOSTILE = "<script>alert('hi')</script>\"&"

READY = replica(2, entered={"REQUESTED": 0, "PROVISIONING": 1, "STARTING": 2, "READY": 30})


def snapshot(*replicas: Replica, missing: Mapping[Part, str] | None = None) -> ServiceSnapshot:
    """A service with these."""
    return ServiceSnapshot(
        "chat", "us-east-1", NOW, rows=Rows(replicas={r.id: r for r in replicas}), missing=missing or {}
    )


@dataclass
class FakeSource:
    """A source that says what it is told to, and counts the questions."""

    seen: ServiceSnapshot = field(default_factory=lambda: snapshot(READY))
    curves: tuple[Curve, ...] = ()
    fails: bool = False
    looks: int = 0
    named: int = 0
    asked: int = 0
    counted: int = 0
    minutes: tuple[Minute, ...] = ()
    consoles: Mapping[str, str] = field(default_factory=dict)
    earlier: list[ServiceSnapshot | None] = field(default_factory=list)

    def names(self) -> Collection[str]:
        """One service, unless asking fails."""
        self.named += 1
        self._fail()
        return ["chat"]

    def look(self, service: str, now: datetime, earlier: ServiceSnapshot | None) -> ServiceSnapshot:
        """What is to be seen, unless asking fails."""
        self.looks += 1
        self.earlier.append(earlier)
        self._fail()
        return replace(self.seen, at=now)

    def details(self, service: str, now: datetime, before: Details | None) -> Details:
        """The curves, unless asking fails."""
        self.asked += 1
        self._fail()
        return Details(now, curves=self.curves)

    def served(self, spec: ServiceSpec, since: datetime, now: datetime) -> tuple[Minute, ...] | None:
        """The minutes, unless asking fails."""
        self.counted += 1
        self._fail()
        return self.minutes

    def console(self, instance_id: str) -> str:
        """The instance's console, unless asking fails."""
        self._fail()
        return self.consoles.get(instance_id, "")

    def _fail(self) -> None:
        if self.fails:
            raise Unavailable("no answer from DynamoDB")


class Desk:
    """A page over a source, with a clock of its own; no threads: a test looks when it wants to."""

    def __init__(self, source: FakeSource, only: str | None = None) -> None:
        self.source = source
        self.at = NOW
        self.poller = Poller(
            source,
            lambda error: str(error) if isinstance(error, Unavailable) else None,
            monotonic_s=lambda: (self.at - NOW).total_seconds(),
            now=lambda: self.at,
        )
        self.use(Site(self.poller, "us-east-1", only, lambda: self.at, first_look_s=0))

    def use(self, site: Site) -> None:
        """Ask this one from now on."""
        self.at_token, self.app = f"/{site.token}", site.app()

    def after(self, seconds: float) -> None:
        """Some time later."""
        self.at += timedelta(seconds=seconds)

    def ask(self, path: str, method: str = "GET", host: str = "127.0.0.1:8765", **more: Any) -> Answer:
        """What the application answers to somebody who knows the address."""
        return self.ask_at(self.at_token + path, method, host, **more)

    def ask_at(self, path: str, method: str = "GET", host: str = "127.0.0.1:8765", **more: Any) -> Answer:
        """What it answers at exactly this path."""
        return asyncio.run(self._ask(path, method, host, **more))

    async def _ask(
        self, path: str, method: str, host: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        told = {"host": host, **(headers or {})}
        scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in told.items()],
        }
        sent: list[Any] = []
        request = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            found = next(request, None)
            if found is None:
                await asyncio.Event().wait()  # the client stays
            return found

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        body = b"".join(m.get("body", b"") for m in sent[1:])
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], headers, body.decode())


@dataclass(frozen=True)
class Answer:
    """An answer of the application's."""

    status: int
    headers: Mapping[str, str]
    text: str


def shown(source: FakeSource) -> Desk:
    """A page that a browser shows, and that was looked at once."""
    desk = Desk(source)
    desk.ask("/services/chat")
    desk.poller.look()
    desk.poller.ask()
    return desk


PATHS = ("/", "/fleet", "/services/chat", "/services/chat/now", "/services/chat/details", "/static/page.js")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8765", "10.0.0.1", ""]
)
@pytest.mark.parametrize("path", [*PATHS, "/services/chat/prices"])
def test_another_host_name_gets_nothing(path: str, host: str) -> None:
    """A foreign page whose name points to this machine (DNS rebinding) can read none of it."""
    answer = shown(FakeSource()).ask(path, host=host)
    assert answer.status == 400
    assert "READY" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "localhost"])
def test_this_machine_gets_the_page(host: str) -> None:
    """By either name of the loopback, with a port or without."""
    assert shown(FakeSource()).ask("/services/chat", host=host).status == 200


@pytest.mark.parametrize("told", ["", "/", "/x", "/%", "/ü"])
@pytest.mark.parametrize("path", [*PATHS, "/services/chat/prices"])
def test_another_user_of_the_machine_gets_nothing(path: str, told: str) -> None:
    """Without the token, or with another one, any path is refused, with what to open instead."""
    desk = shown(FakeSource())
    answer = desk.ask_at(told + path)
    assert (answer.status, "spotrelay ui" in answer.text) == (403, True)
    assert "READY" not in answer.text
    assert desk.ask_at(desk.at_token).status == 200


def test_no_two_pages_have_one_address() -> None:
    """The token is new each time, and too long to be tried."""
    first, second = Desk(FakeSource()).at_token, Desk(FakeSource()).at_token
    assert first != second
    assert min(len(first), len(second)) > 40


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", [*PATHS, "/services/chat/prices"])
def test_the_page_is_read_only(path: str, method: str) -> None:
    """Nothing but GET and HEAD is answered."""
    assert shown(FakeSource()).ask(path, method).status == 405


OWN = {"origin": "http://127.0.0.1:8765", "content-type": "application/json"}


def tried(server: Server, probe: ReadinessProbe | None = CHAT) -> Desk:
    """A page of a service that answers at this server."""
    spec = replace(demo_spec("chat"), readiness_probe=probe, address=server.address)
    return shown(FakeSource(replace(snapshot(READY), spec=spec)))


def send(desk: Desk, said: object, headers: Mapping[str, str] = OWN, **more: Any) -> Answer:
    """Try the service with this form."""
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    return desk.ask("/services/chat/try", "POST", headers=headers, body=body, **more)


def test_a_trial_streams_what_the_service_answers() -> None:
    """A line of JSON for each piece; the service gets the prompt, and the page's form says where it goes."""
    with answering() as server:
        desk = tried(server)
        answer = send(desk, {"prompt": "Hello", "key": "k3y"})
        form = desk.ask("/services/chat").text.split('id="try"')[1].split("</section>")[0]
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert (answer.status, lines[0]["status"]) == (200, 200)
    assert [line["text"] for line in lines[1:-1]] == ["Still ", "here, naïve."]
    assert lines[-1]["problem"] is None
    (sent,) = server.seen
    assert json.loads(sent[3])["messages"] == [{"role": "user", "content": "Hello"}]
    assert f"{server.address}/v1/chat/completions" in form
    assert 'name="prompt"' in form


@pytest.mark.parametrize(
    "headers",
    [
        {**OWN, "origin": "http://evil.example"},
        {**OWN, "origin": "http://127.0.0.1:9999"},
        {**OWN, "origin": "null"},
        {**OWN, "sec-fetch-site": "same-site"},
        {**OWN, "content-type": "text/plain"},
        {"content-type": "application/json"},
        {},
    ],
)
def test_a_foreign_page_can_send_no_request(headers: Mapping[str, str]) -> None:
    """Not even one that knew the token: nothing reaches the service."""
    with answering() as server:
        assert send(tried(server), {"prompt": "Hello"}, headers).status == 403
    assert server.seen == []


def test_who_does_not_know_the_address_can_send_none() -> None:
    """Neither by another token nor by another name of this machine."""
    with answering() as server:
        desk = tried(server)
        for path, host, status in (
            ("/x/services/chat/try", "127.0.0.1:8765", 403),
            (f"{desk.at_token}/services/chat/try", "evil.example", 400),
        ):
            own = {**OWN, "origin": f"http://{host}"}
            assert desk.ask_at(path, "POST", host, headers=own, body=b'{"prompt": "a"}').status == status
    assert server.seen == []


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"", 400), (b"[]", 400), (b"3", 400), (b"{", 400), (b"\xff", 400), ({}, 400), ({"prompt": 3}, 400),
        ({"prompt": "x" * 70_000}, 400), (b"x" * 200_000, 413),
    ],
)  # fmt: skip
def test_what_is_no_form_is_refused_in_words(said: object, status: int) -> None:
    """Whatever a script makes of it."""
    with answering() as server:
        answer = send(tried(server), said)
    assert answer.status == status
    assert json.loads(answer.text)["problem"]
    assert server.seen == []


def test_a_form_names_no_address() -> None:
    """Only the path is taken, and it can't lead to another host."""
    with answering() as server:
        desk = tried(server, None)
        for path in ("@evil.example/", "//evil.example/", "http://evil.example/"):
            assert send(desk, {"method": "GET", "path": path}).status == 400
        assert send(desk, {"method": "GET", "path": "/x", "address": "http://evil.example"}).status == 200
    assert [(seen[0], seen[1]) for seen in server.seen] == [("GET", "/x")]


def test_a_service_whose_address_is_unknown_has_no_form() -> None:
    """Behind a load balancer of the user's: a request might be somebody else's."""
    desk = shown(FakeSource(replace(snapshot(READY), spec=demo_spec("chat"))))
    assert "Its address isn't known here" in desk.ask("/services/chat").text
    assert send(desk, {"prompt": "Hello"}).status == 409


@pytest.mark.parametrize("path", [*PATHS, "/services/chat/prices", "/nowhere"])
def test_each_answer_forbids_scripts_of_others(path: str) -> None:
    """Every answer, errors too, has a policy without inline script and without other hosts."""
    policy = shown(FakeSource()).ask(path).headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert {rules["script-src"], rules["style-src"], rules["connect-src"]} == {"'self'"}
    assert rules["frame-ancestors"] == "'none'"


def test_hostile_words_stay_words() -> None:
    """What EC2, a reason or a pool's name says is shown as text, in tables and in the picture."""
    failed = replica(3, ReplicaState.FAILED, entered={"REQUESTED": 0, "FAILED": 60})
    hostile = replace(READY, offering=replace(_offering(READY), pool=replace(POOL, zone=HOSTILE)))
    desk = shown(FakeSource(snapshot(hostile, replace(failed, reason=HOSTILE))))
    for path in ("/services/chat", "/services/chat/now"):
        text = desk.ask(path).text
        assert "<script>alert" not in text
        assert text.count("&lt;script&gt;alert") >= 4  # the table, the picture, and the list of failures
    assert "<script>alert" not in desk.ask(f"/services/{HOSTILE.replace('/', '')}").text


def _offering(of: Replica) -> Any:
    assert of.offering
    return of.offering


def test_if_aws_cannot_be_asked_the_last_data_stays_with_its_age() -> None:
    """A line says why, and how old what is shown is; the replicas stay; once AWS answers, the line goes."""
    source = FakeSource()
    desk = shown(source)
    source.fails = True
    desk.after(31)
    desk.ask("/services/chat")
    desk.poller.look()
    text = desk.ask("/services/chat/now").text
    assert "AWS can't be asked: no answer from DynamoDB; what is shown is 31 s old" in text
    assert 'id="replica-2"' in text
    source.fails = False
    desk.poller.look()
    assert "be asked" not in desk.ask("/services/chat/now").text


def test_rows_that_cannot_be_read_leave_those_that_were() -> None:
    """A permission that is taken away keeps the last table, and the missing action is named."""
    source = FakeSource()
    desk = shown(source)
    source.seen = snapshot(missing={Part.ROWS: "missing dynamodb:Query"})
    desk.poller.look()
    text = desk.ask("/services/chat/now").text
    assert "missing dynamodb:Query" in text
    assert 'id="replica-2"' in text


def lines(text: str) -> str:
    """The words of a page, without its tags."""
    return " ".join(re.sub("<[^>]*>", " ", text).split())


def test_what_clients_met_is_beside_the_timeline() -> None:
    """Requests, errors and latency of the last hour, by the minute, in words and as bars; errors in red."""
    at = NOW - timedelta(minutes=3)
    minutes = (Minute(at - timedelta(minutes=1), 120, 2, 0.2, 1.5), Minute(at, 1500, 0, 0.2, 0.5, 7.0))
    source = FakeSource(replace(snapshot(READY), spec=demo_spec("chat")), minutes=minutes)
    text = shown(source).ask("/services/chat/now").text
    words = lines(text)
    assert f"Requests a minute: 1,500 at {at:%H:%M}, 1,500 at most" in words
    assert f"Answers of 5xx a minute: 0 at {at:%H:%M}, 2 at most" in words
    assert f"Until 99 % of answers began: 0.5 s at {at:%H:%M}, 1.5 s at most" in words
    assert f"Requests that replicas have: 7 at {at:%H:%M}, 7 at most" in words
    assert text.count('<figure class="bad">') == 1
    drawn = next(graphs(minutes, NOW)).svg
    assert 'x="57.00" y="0.00" width="0.80" height="24.00"' in drawn


def test_a_service_without_requests_has_none_in_words() -> None:
    """Nothing is drawn, and nothing fails; where nobody counts, it is said so."""
    assert [one.words for one in graphs((), NOW)] == ["none"] * 3
    assert "Nobody counts them" in shown(FakeSource()).ask("/services/chat").text


def test_what_clients_met_is_asked_for_every_minute_and_stays_if_it_cannot_be() -> None:
    """However often the page is shown; a failure is told, with what was known before."""
    minutes = (Minute(NOW - timedelta(minutes=3), 120, 0),)
    source = FakeSource(replace(snapshot(READY), spec=demo_spec("chat")), minutes=minutes)
    desk = shown(source)
    for _ in range(29):
        desk.after(2)
        desk.ask("/services/chat")
        desk.poller.ask()
    assert source.counted == 1
    desk.after(2)
    desk.ask("/services/chat")
    source.fails = True
    desk.poller.ask()
    assert source.counted == 2
    words = lines(desk.ask("/services/chat/now").text)
    assert "Not read: no answer from DynamoDB" in words
    assert "120 at" in words


def test_a_roll_out_shows_how_far_it_is() -> None:
    """Which version replaces which, and how many are new; without one there is no line."""
    spec = replace(demo_spec("chat"), version=2, on_update=OnUpdate.ROLLING)
    new = replace(READY, id=3, version=2)
    text = lines(shown(FakeSource(replace(snapshot(READY, new), spec=spec))).ask("/services/chat").text)
    assert "Roll-out v1→v2: 1/3 new, 0 failed, 1 to go" in text
    done = replace(snapshot(new), spec=spec)
    assert "Roll-out" not in shown(FakeSource(done)).ask("/services/chat").text


def test_a_replica_has_a_page_of_what_explain_says() -> None:
    """Its story, its states, its log's command and its instance in AWS's console; the tables lead there."""
    one = replace(READY, instance_id="i-0123456789abcdef0", replaces=1)
    desk = shown(FakeSource(replace(snapshot(one), spec=demo_spec("chat"))))
    assert f'href="{desk.at_token}/services/chat/replicas/2"' in desk.ask("/services/chat").text
    assert "spotrelay logs chat 2" in desk.ask("/services/chat/replicas/2").text
    for path in ("/services/chat/replicas/2", "/services/chat/replicas/2/now"):
        text = desk.ask(path).text
        assert "why it exists it replaces replica 1" in lines(text)
        assert (
            "https://us-east-1.console.aws.amazon.com/ec2/home?region=us-east-1"
            "#InstanceDetails:instanceId=i-0123456789abcdef0"
        ) in text
        assert "unknown: EC2" not in text, "what it cost isn't asked for here"
    assert "Nothing is known of it" in desk.ask("/services/chat/replicas/9").text


def test_a_replica_s_console_is_read_when_somebody_asks() -> None:
    """What it wrote, as text; why it can't be read; that there is nothing, of one that isn't known, too."""
    one = replace(READY, instance_id="i-0123456789abcdef0")
    desk = shown(FakeSource(snapshot(one), consoles={"i-0123456789abcdef0": "up <b>\x1b[2J"}))
    path = "/services/chat/replicas/2/console"
    assert f'hx-get="{desk.at_token}{path}"' in desk.ask("/services/chat/replicas/2").text
    assert "<pre>up &lt;b&gt;" in desk.ask(path).text
    assert "\x1b" not in desk.ask(path).text
    desk.source.fails = True
    assert '<p class="problem">no answer from DynamoDB</p>' in desk.ask(path).text
    for silent in (snapshot(one), snapshot(replica(2)), snapshot()):
        assert "EC2 has nothing of it" in shown(FakeSource(silent)).ask(path).text


def test_an_alarm_leads_to_what_to_do() -> None:
    """One that rings is a link to its section of the runbook, which is a page here."""
    alarm = Alarm("NotWhole", AlarmState.ALARM, NOW, "Run `spotrelay status chat`.")
    desk = shown(FakeSource(replace(snapshot(READY), alarms=(alarm,))))
    assert f'href="{desk.at_token}/runbook#notwhole"' in desk.ask("/services/chat").text
    text = desk.ask("/runbook").text
    for name in core_names.Alarm:
        assert f'<h3 id="{name.lower()}">' in text
    targets = set(re.findall(r'href="([^"]*)"', text.partition("<article")[2].partition("</article>")[0]))
    assert {target.partition("#")[0] for target in targets if not target.startswith("https://")} == {""}
    assert [target for target in targets if target[0] == "#" and f'id="{target[1:]}"' not in text] == []
    assert desk.ask("/services/chat/replicas/x").status == 404


def test_alarms_that_ring_say_what_to_do() -> None:
    """In red, each with its description: the command to run, what it means, its section of the runbook."""
    alarm = Alarm("NotWhole", AlarmState.ALARM, NOW, "Run `spotrelay status chat`. See docs/operations.md")
    calm = Alarm("Elb5xx", AlarmState.OK, NOW, "Run nothing")
    desk = shown(FakeSource(replace(snapshot(READY), alarms=(alarm, calm))))
    for path in ("/", "/services/chat"):
        text = desk.ask(path).text
        assert 'class="ringing">NotWhole<' in text
        assert "NotWhole since 00:10:00. Run `spotrelay status chat`" in lines(text)
        assert "Run nothing" not in text


def test_the_fleet_has_sums() -> None:
    """Over all services, and none while nothing is known; what isn't known of one isn't known of all."""
    seen = replace(snapshot(READY), spec=demo_spec("chat"))
    desk = shown(FakeSource(seen))
    assert "Services 1 Not whole 1 Ready 1/3 On demand 0 USD/h 0.00 Lost in 24 h 0 Alarms 0" in lines(
        desk.ask("/").text
    )
    assert "Not whole" not in lines(Desk(FakeSource()).ask("/").text)
    blind = status(replace(seen, missing={Part.ALARMS: "missing cloudwatch:DescribeAlarms"}))
    found = sums([status(seen), blind])
    assert found
    assert (found.services, found.ready, found.desired, found.alarms) == (2, 2, 6, None)


def test_many_browsers_cause_no_more_questions() -> None:
    """What a browser asks for is answered from what was seen: only the poller asks AWS."""
    source = FakeSource()
    desk = shown(source)
    before = (source.looks, source.named, source.asked)
    for _ in range(20):
        for path in (*PATHS, "/services/chat/prices"):
            desk.ask(path)
    assert (source.looks, source.named, source.asked) == before


def test_prices_are_asked_for_every_five_minutes_at_most() -> None:
    """However often the page is shown; the names, the address and the alarms every half minute."""
    source = FakeSource()
    desk = shown(source)
    for _ in range(149):
        desk.after(2)
        desk.ask("/services/chat")
        desk.poller.look()
        desk.poller.ask()
    assert (source.looks, source.asked) == (150, 1)
    assert source.named == 10
    assert sum(earlier is None for earlier in source.earlier) == 10
    desk.after(2)
    desk.ask("/services/chat")
    desk.poller.ask()
    assert source.asked == 2


def test_without_a_browser_aws_is_left_alone() -> None:
    """A quarter of a minute after the last request, the poller asks nothing any more."""
    source = FakeSource()
    desk = shown(source)
    desk.after(page_poller.ASKED_FOR_S + 1)
    desk.poller.look()
    desk.poller.ask()
    assert (source.looks, source.asked) == (1, 1)


def test_a_service_that_is_not_there_is_said_so() -> None:
    """A wrong name in the address gets a line, and no question to AWS."""
    source = FakeSource()
    desk = shown(source)
    text = desk.ask("/services/chatt").text
    assert "No service chatt is deployed in us-east-1" in text
    desk.poller.look()
    assert source.looks == 2  # of chat alone


def test_a_page_comes_with_the_first_look() -> None:
    """A page that nobody has asked for yet waits a moment for it, instead of saying that it reads."""
    source = FakeSource()
    poller = Poller(source, str)
    with poller:
        desk = Desk(source)
        desk.use(Site(poller, "us-east-1"))
        for path in ("/", "/services/chat"):
            assert "Reading…" not in desk.ask(path).text.split("chart")[0]
        assert f'href="{desk.at_token}/services/chat"' in desk.ask("/").text


def test_a_page_of_one_service_opens_with_it() -> None:
    """The front page of `spotrelay ui NAME` is the service's."""
    desk = Desk(FakeSource(), "chat")
    answer = desk.ask("/")
    assert (answer.status, answer.headers["location"]) == (307, f"{desk.at_token}/services/chat")


def test_the_picture_is_of_the_last_hour() -> None:
    """A replica that ended before isn't drawn; of many, the newest are, and how many aren't is said."""
    gone = replica(1, ReplicaState.TERMINATED, entered={"REQUESTED": -9000, "TERMINATED": -4000})
    assert "#1<" not in last_hour(snapshot(gone, READY))
    many = [replace(READY, id=n) for n in range(1, MOST_ROWS + 4)]
    drawn = last_hour(snapshot(*many))
    assert "#3<" not in drawn
    assert "#4<" in drawn
    assert "3 older ones" in drawn


def test_a_loss_is_a_mark() -> None:
    """One that was warned is flagged w, one without a warning with an exclamation mark."""
    at = START + timedelta(seconds=100)
    times = {"REQUESTED": 0.0, "PROVISIONING": 1, "STARTING": 2, "READY": 30, "DRAINING": 100}
    warned = replace(
        replica(4, ReplicaState.DRAINING, entered=times), warned_at=at, reason="interruption warning"
    )
    assert "1 lost" in last_hour(snapshot(READY, warned))
    assert ">w</text>" in last_hour(snapshot(READY, warned)).split("REQUESTED")[0]


def test_the_chart_has_each_pool_at_each_time() -> None:
    """All lines share the times; a price stands until its next change; on-demand takes no room."""
    curve = Curve(POOL, ((NOW - timedelta(hours=40), 0.3), (NOW - timedelta(hours=1), 0.4)), 1.0)
    found = chart(Details(NOW, curves=(curve,)), NOW)
    assert len(found["times"]) == 4
    (pool,) = found["pools"]
    assert (pool["name"], pool["usd"]) == ("us-east-1a/g5.xlarge", [0.3, 0.3, 0.4, 0.4])
    assert (pool["on_demand_usd"], pool["number_at"]) == (1.0, 0.4)
    assert found["bounds"] == pytest.approx((0.29, 0.41))


def test_a_browser_is_given_a_page_that_leads_to_the_address(tmp_path: Path) -> None:
    """What it is started with doesn't hold the token: every user of the machine can read that."""
    address = "http://127.0.0.1:8765/t0ken/"
    page = forward(tmp_path, address)
    assert f"url={address}" in page.read_text()
    assert "t0ken" not in page.as_uri()
