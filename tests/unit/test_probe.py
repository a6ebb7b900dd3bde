"""The readiness probe, against servers on loopback that behave as badly as a replica can."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas import probe

pytestmark = [
    pytest.mark.timeout(60),  # where a bound is missing, a test would wait for ever
    pytest.mark.usefixtures("on_loopback"),
]

PATIENCE_S = 30.0
"""For those who answer at once, however busy the machine is: nobody waits for it to pass."""

ENOUGH_S = 3.0
"""Where some answer at once and others never: it does pass, and the first must have answered by then."""

SHORT_S = 0.2
"""Where nobody comes to an end."""

REQUEST = (
    "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nUser-Agent: SpotRelay\r\n"
    'Content-Type: application/json\r\nContent-Length: 17\r\nConnection: close\r\n\r\n{{"max_tokens": 1}}'
)
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

Behaviour = Callable[[socket.socket], object]
Serve = Callable[[Behaviour], str]
Listen = Callable[[], socket.socket]


def ask(urls: Mapping[str, str], timeout_s: float = PATIENCE_S) -> list[str]:
    """Invoke the function as the controller does; those that are ready."""
    event: dict[str, Any] = {"urls": urls, "post_data": {"max_tokens": 1}, "timeout_s": timeout_s}
    answering: list[str] = probe.handler(event, object())["answering"]
    return answering


def url_of(listener: socket.socket) -> str:
    """Where the controller would have it probed."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}/v1/chat/completions"


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Make a server that hangs: connections reach it, and nobody takes them."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=256))


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server that reads each request and then does as it is told, each in a thread of its own."""

    class Server(ThreadingTCPServer):
        request_queue_size = 256

    with ExitStack() as stack:

        def start(behave: Behaviour) -> str:
            class Handler(BaseRequestHandler):
                request: socket.socket

                def handle(self) -> None:
                    with suppress(OSError):
                        got = piece = self.request.recv(1 << 16)
                        while piece and not got.endswith(b"}"):
                            got += (piece := self.request.recv(1 << 16))
                        assert got.decode() == REQUEST.format(server.server_address[1])
                        behave(self.request)

            server = stack.enter_context(Server(("127.0.0.1", 0), Handler))
            threading.Thread(target=server.serve_forever, args=(0.01,)).start()
            stack.callback(server.shutdown)
            return url_of(server.socket)

        yield start


@pytest.fixture
def full() -> Iterator[str]:
    """The URL of a server that takes no more connections: Linux drops the packets that ask for one."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as stack:
        for _ in range(4):  # one more than the backlog finds room
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield url_of(listener)


def says(*answer: bytes) -> Behaviour:
    """Send it, and close the connection."""
    return lambda connection: connection.sendall(b"".join(answer))


def drips(start: bytes) -> Behaviour:
    """Send the start, and then a byte at a time for as long as anybody listens."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(start)
        while True:
            connection.sendall(b"x")
            time.sleep(0.02)

    return behave


def test_the_probe_is_a_real_request(serve: Serve) -> None:
    """Only a replica that answers the POST with 200 counts; 503, 404, 204 and nobody there don't."""
    urls = {
        "i-1": serve(says(GOOD)),
        "i-2": serve(says(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")),
        "i-3": serve(says(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")),
        "i-4": serve(says(b"HTTP/1.1 204 No Content\r\n\r\n")),
        "i-5": "http://127.0.0.1:9/",
    }
    assert ask(urls) == ["i-1"]
    assert ask({}) == []


def sent(**event: Any) -> str:
    """What a replica gets that is ready."""
    heard: list[bytes] = []

    def hear(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            heard.append(connection.recv(65_536))
            connection.sendall(GOOD)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=hear, args=(listener,))
        thread.start()
        answer = probe.handler(
            {"urls": {"i-1": url_of(listener)}, "timeout_s": PATIENCE_S, **event}, object()
        )
        thread.join()
    assert answer == {"answering": ["i-1"], "refusing": []}
    return heard[0].decode()


def test_without_data_the_probe_is_a_get() -> None:
    """It has no body, and says nothing of one."""
    request = sent(post_data=None)
    assert request.startswith("GET /v1/chat/completions HTTP/1.1\r\n")
    assert "content-" not in request.lower()


def test_the_file_s_headers_are_sent() -> None:
    """They replace those of ours that say the same in other case, but not how the request is sent."""
    headers = {"Authorization": "Bearer ü", "content-type": "text/plain", "Content-Length": "9", "x": ""}
    lines = sent(post_data={}, headers=headers).partition("\r\n\r\n")[0].split("\r\n")
    assert "Authorization: Bearer ü" in lines
    content = [line for line in lines if line.lower().startswith("content-")]
    assert content == ["content-type: text/plain", "Content-Length: 2"]


@pytest.mark.parametrize("header", [{"a": "b\r\nHost: evil"}, {"a: b\r\nc": "d"}, {"": "x"}, {"a b": "x"}])
def test_a_header_is_one_line(header: dict[str, str], listen: Listen) -> None:
    """What would be two is refused, and nobody is asked."""
    event = {"urls": {"i-1": url_of(listen())}, "headers": header, "timeout_s": 1}
    with pytest.raises(ValueError, match="a header is one line"):
        probe.handler(event, object())


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
    ids=["status line", "header", "body with a length", "chunked body", "body without a length"],
)
def test_who_drips_is_not_ready(serve: Serve, start: bytes) -> None:
    """A replica that sends a byte at a time never lets a read time out; the probe ends all the same."""
    assert ask({"i-1": serve(drips(start))}, SHORT_S) == []


def test_an_endless_answer_is_an_answer_and_is_not_read(serve: Serve) -> None:
    """With status 200, what is longer than the bound counts; beyond the bound nothing is read or kept."""
    mebibyte, sent = bytes(1 << 20), []

    def pour(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 629145600\r\n\r\n")
        for _ in range(600):
            connection.sendall(mebibyte)
            sent.append(1)

    url = serve(pour)
    tracemalloc.start()
    try:
        assert ask({"i-1": url}) == ["i-1"]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert len(sent) < 60, "MiB, which the kernel took into its buffers"


def test_endless_headers_are_no_answer(serve: Serve) -> None:
    """Headers are bounded like a body, and no answer before they have ended."""
    headers = b"".join(b"X-%d: %s\r\n" % (n, b"x" * 1000) for n in range(1000))
    urls = {
        "i-1": serve(says(b"HTTP/1.1 200 OK\r\n", headers, b"Content-Length: 0\r\n\r\n")),
        "i-2": serve(says(b"HTTP/1.1 200 OK\r\nX: ", bytes(1 << 20), b"\r\n\r\n")),
    }
    assert ask(urls) == []


def test_redirects_lead_nowhere(serve: Serve, listen: Listen) -> None:
    """A redirect is no 200, and nobody goes where it points to."""
    elsewhere = listen()
    elsewhere.setblocking(False)
    moved = "HTTP/1.1 {}\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n"
    redirects = {
        f"i-{status}": serve(says(moved.format(status, url_of(elsewhere)).encode()))
        for status in (301, 302, 303, 307, 308)
    }
    assert ask(redirects) == []
    with pytest.raises(BlockingIOError):
        elsewhere.accept()


def test_no_proxy_is_asked(serve: Serve, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment says of proxies, a replica is asked directly."""
    proxy = listen()
    proxy.setblocking(False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, url_of(proxy))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("REQUEST_METHOD", raising=False)  # with it urllib ignores HTTP_PROXY
    assert ask({"i-1": serve(says(GOOD))}) == ["i-1"]
    with pytest.raises(BlockingIOError):
        proxy.accept()


def test_a_connection_that_is_never_made_ends_in_time(full: str) -> None:
    """The time-out begins with connecting: one that can't be reached is given up, too."""
    assert ask({"i-1": full}, SHORT_S) == []


def test_bad_replicas_cost_a_good_one_nothing(serve: Serve, listen: Listen, full: str) -> None:
    """Sixty say nothing, sixty drip and one can't be reached: the one that answers is heard."""
    dripping, hanging = serve(drips(b"HTTP/1.1 200 OK\r\n\r\n")), url_of(listen())
    urls = {f"i-{n}": hanging for n in range(60)} | {f"i-{n}": dripping for n in range(60, 120)}
    assert ask(urls | {"i-120": full, "i-121": serve(says(GOOD))}, ENOUGH_S) == ["i-121"]


def test_all_are_asked_at_the_same_time(serve: Serve) -> None:
    """Two hundred replicas of which none answers before all have been asked: all are ready."""
    everybody = threading.Barrier(200)

    def behave(connection: socket.socket) -> None:
        everybody.wait(PATIENCE_S)
        connection.sendall(GOOD)

    url = serve(behave)
    urls = {f"i-{n}": url for n in range(200)}
    assert ask(urls) == list(urls)


def test_nothing_is_left_behind(listen: Listen) -> None:
    """However a probe ended, its socket is closed, and no thread was started: Lambda keeps the process."""
    hanging = url_of(listen())
    urls = {f"i-{n}": hanging for n in range(20)} | {"i-20": "http://127.0.0.1:9/"}
    process = psutil.Process()
    ask(urls, 0.05)  # what is loaded once may stay
    before = process.num_fds(), threading.active_count()
    for _ in range(3):
        assert ask(urls, 0.05) == []
    assert (process.num_fds(), threading.active_count()) == before


def test_a_server_that_keeps_the_connection_is_judged_by_what_it_sent(serve: Serve) -> None:
    """Whoever ignores `Connection: close` is ready if the answer is whole by the deadline, and else not."""

    def stays(answer: bytes) -> Behaviour:
        def behave(connection: socket.socket) -> None:
            connection.sendall(answer)
            connection.recv(1)

        return behave

    urls = {"i-1": serve(stays(GOOD)), "i-2": serve(stays(GOOD[:-1]))}
    assert ask(urls, ENOUGH_S) == ["i-1"]


@pytest.mark.parametrize(
    ("answer", "is_refusal"),
    [
        (b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\n\r\n", True),
        (b"", True),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /\r\n\r\n", False),
        (b"HTTP/1.1 500", False),
        (b"nonsense", False),
        (GOOD, False),
    ],
)
def test_an_error_is_a_refusal_unless_it_is_about_load(serve: Serve, answer: bytes, is_refusal: bool) -> None:
    """An error, or a connection that is closed without a word. What is only slow refuses nothing."""
    event = {"post_data": {"max_tokens": 1}, "timeout_s": ENOUGH_S}
    said = probe.handler({"urls": {"i-1": serve(says(answer))}, **event}, object())
    assert {"answering": said["answering"], "refusing": said["refusing"]} == {
        "answering": ["i-1"] * (answer == GOOD),
        "refusing": ["i-1"] * is_refusal,
    }


CRASH = b"HTTP/1.0 503 Service Unavailable\r\nSpotRelay-Crash: 3\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n{}", {"status": {"i-1": "404 Not Found"}}),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 401 No\x1b[2J\x07\r\n\r\n",
            {"status": {"i-1": "401 No [2J"}},
        ),
        (b"HTTP/1.1 500 " + b"x" * 1000 + b"\r\n\r\n", {"status": {"i-1": "500 " + "x" * 76}}),
        (CRASH + b"a\x1b]0;b\nlast \xff\r\n", {"crashing": {"i-1": [3, "a ]0;b\nlast \ufffd"]}}),
        (CRASH + b"1" * 2000 + b"2", {"crashing": {"i-1": [3, "1" * 999 + "2"]}}),
        (CRASH, {"crashing": {"i-1": [3, ""]}}),
        (CRASH.replace(b": 3", b": 99999"), {}),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\nSpotRelay-Crash: 3", {}),
        (b"HTTP/1.1 200 OK\r\nSpotRelay-Crash: 3\r\n\r\n", {}),
        (b"", {}),
    ],
)
def test_why_it_is_not_ready_is_heard(serve: Serve, answer: bytes, told: dict[str, Any]) -> None:
    """The status that it refuses with, or what its instance tells of a crash: short, and harmless to read."""
    event = {"post_data": {"max_tokens": 1}, "timeout_s": ENOUGH_S}
    said = probe.handler({"urls": {"i-1": serve(says(answer))}, **event}, object())
    assert {kind: said[kind] for kind in said.keys() - {"answering", "refusing"}} == told


def test_who_is_silent_or_not_there_at_all(listen: Listen) -> None:
    """Silence until the deadline is no refusal; a port where nobody listens is one."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        urls = {"silent": url_of(listen()), "closed": url_of(closed)}
    said = probe.handler({"urls": urls, "post_data": {"max_tokens": 1}, "timeout_s": SHORT_S}, object())
    assert said == {"answering": [], "refusing": ["closed"]}


def test_what_goes_wrong_with_one_replica_is_its_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the error is: the others' answers count."""

    async def answer(of: Any, *_: object) -> tuple[bytes, bool]:
        if of[0][1] == 1:
            raise RuntimeError("a bug")
        return GOOD, True

    monkeypatch.setattr(probe, "_answer", answer)
    urls = {"i-1": "http://127.0.0.1:1/", "i-2": "http://127.0.0.1:2/"}
    assert probe.handler({"urls": urls, "timeout_s": 1}, object()) == {"answering": ["i-2"], "refusing": []}


@pytest.mark.parametrize("event", [{"metrics": ["busy"]}, {}])
def test_what_cannot_be_read_of_one_replica_is_its_silence(
    monkeypatch: pytest.MonkeyPatch, event: Mapping[str, Any]
) -> None:
    """A mistake in what reads the answers costs the one that provokes it, and nobody else."""
    read = probe._first_head

    def fail(answer: bytes) -> Any:
        if b"evil" in answer:
            raise RuntimeError("a bug")
        return read(answer)

    monkeypatch.setattr(probe, "_first_head", fail)
    said = judged({"evil": b"evil", "good": FULL}, event)
    assert said.get("answering", []) == ([] if event else ["good"])
    assert said.get("ongoing", {}) == ({"good": 3} if event else {})


def test_a_connection_that_is_reset_is_no_answer(serve: Serve) -> None:
    """A replica that breaks off is not ready, before its answer or in it."""

    def resets(answer: bytes) -> Behaviour:
        def behave(connection: socket.socket) -> None:
            connection.sendall(answer)
            # Without a time to linger, to close is to reset.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

        return behave

    urls = {"i-1": serve(resets(b"")), "i-2": serve(resets(GOOD[:-1])), "i-3": serve(says(GOOD))}
    assert ask(urls) == ["i-3"]


@pytest.mark.parametrize(
    "url",
    [
        "https://10.0.0.1:8081/",
        "file:///etc/passwd",
        "http://169.254.169.254:80/latest/meta-data/",
        "http://8.8.8.8:53/",
        "http://0.0.0.0:8081/",
        "http://224.0.0.1:8081/",
        "http://255.255.255.255:8081/",
        "http://localhost:8081/",
        "http://example.com:8081/",
        "http://[::1]:8081/",
        "http://2130706433:8081/",
        "http://010.0.0.1:8081/",
        "http://10.0.0.1/",
        "http://10.0.0.1:0/",
        "http://10.0.0.1:65536/",
        "http://10.0.0.1:8081",
        "http://user@10.0.0.1:8081/",
        "http://10.0.0.1:8081@8.8.8.8:80/",
        "http://10.0.0.1:8081/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
        "http://10.0.0.1:8081/\n",
    ],
)
def test_only_replicas_can_be_reached(url: str, listen: Listen) -> None:
    """Anything but http://<private IPv4 address>:<port>/… is refused by name, before anybody is asked."""
    beside = listen()
    beside.setblocking(False)
    with pytest.raises(ValueError, match=re.escape(repr(url))):
        ask({"i-1": url_of(beside), "i-2": url})
    with pytest.raises(BlockingIOError):
        beside.accept()


@pytest.mark.parametrize("host", ["10.0.0.1", "172.31.0.1", "192.168.0.1", "100.64.0.1"])
def test_every_address_that_a_vpc_gives_may_be_asked(host: str) -> None:
    """Private networks are accepted, and the shared 100.64.0.0/10, which VPCs use as well."""
    assert ask({"i-1": f"http://{host}:9/"}, 0.01) == []


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "good_if_open", "good_if_closed"),
    [
        (GOOD, True, True),
        (GOOD.replace(b"\r\n", b"\n"), True, True),
        (GOOD.replace(b"1.1", b"1.0"), True, True),
        (GOOD.replace(b" OK", b""), True, True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + GOOD, True, True),
        (GOOD + b"more than was said", True, True),
        (GOOD[:-1], False, False),
        (b"HTTP/1.1 200 OK\r\n\r\nsome text", False, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nsome text", False, True),
        (CHUNKED + b"2\r\n{}\r\n0\r\n\r\n", True, True),
        (CHUNKED + b"2;name=value\r\n{}\r\n0\r\nTrailer: x\r\n\r\n", True, True),
        (CHUNKED + b"2\r\n{}\r\n", False, False),
        (CHUNKED + b"8\r\n\r\n0\r\n\r\n", False, False),
        (CHUNKED + b"data: no chunk\r\n0\r\n\r\n", False, False),
        (CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n", False, False),
        (CHUNKED + b"ffffffffffffffff\r\n{}\r\n0\r\n\r\n", False, False),
        (CHUNKED + b"7fffffffffffffff\r\n{}\r\n0\r\n\r\n", False, False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", False, False),
        (b"HTTP/1.1 100 Continue\r\n\r\n", False, False),
        (GOOD.replace(b"200", b"2000"), False, False),
        (GOOD.replace(b"200", b"503"), False, False),
        (GOOD.replace(b"1.1", b"2"), False, False),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n" + GOOD, False, False),
        (b"", False, False),
    ],
)
def test_an_answer_is_good_if_it_is_whole(answer: bytes, good_if_open: bool, good_if_closed: bool) -> None:
    """Status 200, all headers and all of the body, whichever way its length is said."""
    assert probe.is_good(answer, closed=False) == good_if_open
    assert probe.is_good(answer, closed=True) == good_if_closed


PIECES = [
    GOOD, CHUNKED, b"HTTP/1.1 ", b"200", b"100", b"\r\n", b"\n", b"Content-Length: ", b"9" * 18,
    CHUNKED + b"ffffffffffffffff\r\n", CHUNKED + b"2\r\n{}\r\n", b"ffffffff\r\n",
    b"\nbusy", b'{a="', b'"}', b" 1e999", b" NaN", b" -1", b"# TYPE busy",
]  # fmt: skip
HOSTILE = st.lists(st.sampled_from(PIECES) | st.binary(max_size=8)).map(b"".join)


@given(HOSTILE, st.booleans())
def test_no_answer_is_an_exception(answer: bytes, closed: bool) -> None:
    """Whatever a replica sends is judged."""
    assert probe.is_good(answer, closed=closed) in (True, False)


FULL = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nbusy 3"


def judged(answers: Mapping[str, bytes], event: Mapping[str, Any]) -> dict[str, Any]:
    """What the function says of replicas that send this."""

    async def answered(probes: Mapping[str, object], *_: object) -> dict[str, tuple[bytes, bool]]:
        return {id_: (answers[id_], True) for id_ in probes}

    urls = dict.fromkeys(answers, "http://127.0.0.1:1/")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "_answers", answered)
        return probe.handler({"urls": urls, "timeout_s": 1, **event}, object())


@given(HOSTILE)
def test_a_hostile_answer_costs_another_replica_nothing(answer: bytes) -> None:
    """It is judged, or it is its replica's silence: the good one is ready, and its load is known."""
    answers = {"evil": answer, "good": FULL}
    assert "good" in judged(answers, {})["answering"]
    assert judged(answers, {"metrics": ["busy"]})["ongoing"]["good"] == 3
    count = {
        "urls": {"evil": "http://127.0.0.1:1/"},
        "timeout_s": 1,
        "finished": ["busy"],
        "ongoing": ["busy"],
    }
    assert "good" in judged(answers, {"count": count})["answering"]
