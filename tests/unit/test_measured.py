"""How many requests replicas have, by their own account: their servers may send anything."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas import probe

pytestmark = [
    pytest.mark.timeout(60),  # where a bound is missing, a test would wait for ever
    pytest.mark.usefixtures("on_loopback"),
]

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"

PATIENCE_S = 30.0
"""For those who answer at once, however busy the machine is."""

VLLM = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta-llama/Llama-3.1-8B"} 3.0
vllm:num_requests_running{engine="1",model_name="meta-llama/Llama-3.1-8B"} 4.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="meta-llama/Llama-3.1-8B"} 12.0
vllm:num_requests_waiting{engine="1",model_name="meta-llama/Llama-3.1-8B"} 0.0
# HELP vllm:num_requests_waiting_by_reason Number of requests waiting, by reason.
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 12.0
vllm:generation_tokens_created{engine="0"} 1.7e+09
"""
"""As vLLM says it, with two engines."""


def page(body: bytes) -> bytes:
    """The HTTP answer with this body."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def ongoing(body: bytes, *names: str) -> float:
    """What it says of these metrics."""
    return probe.ongoing_in(page(body), names or (RUNNING, WAITING), closed=False)


def test_vllm_s_requests_are_those_running_and_waiting_of_all_engines() -> None:
    """A metric whose name begins like another's is another's."""
    assert ongoing(VLLM) == 19.0
    assert ongoing(VLLM, WAITING) == 12.0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"busy 3", 3),
        (b"busy 3\n", 3),
        (b"busy 3 1795000000000\n", 3),
        (b"busy 3\r\n", 3),
        (b"\t busy \t 3 \n", 3),
        (b'busy{} 1\nbusy{a=""} 2e0\n', 3),
        (b'busy {a="x",} 3\n', 3),
        (b'busy{a="}",b="{",c="\\"} 9",d="\\\\"} 3\n', 3),
        (b'busy{a="\xff\xc3\xa9"} +3.\n', 3),
        (b'busy 3 # {trace="1"} 1.0\n', 3),
        (b"busy_total 9\nnot_busy 9\nbusy:x 9\nbusy 3\n", 3),
        (b"# busy 9\n#busy 9\nbusy 3\n", 3),
        (b'other{a="busy 9"} 9\nbusy 3\n', 3),
        (b"# TYPE busy gauge\n", 0),
        (b"# HELP busy How many.\n", 0),
        (b"busy -0\n", 0),
    ],
)
def test_the_format_is_read(body: bytes, expected: float) -> None:
    """Labels with anything in them, times, spaces; what is announced and has no value yet is none."""
    assert ongoing(body, "busy") == expected


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "there is no metric busy"),
        (b"<html>busy 3</html>", "there is no metric busy"),
        (b"busy3\n", "there is no metric busy"),
        (b"# TYPE busy_total counter\n", "there is no metric busy"),
        (b"busy NaN\n", "no number of requests: ' NaN'"),
        (b"busy +Inf\n", "no number of requests"),
        (b"busy Infinity\n", "no number of requests"),
        (b"busy -1\n", "no number of requests"),
        (b"busy 1e10\n", "no number of requests"),
        (b"busy 1_000\n", "no number of requests"),
        (b"busy 0x10\n", "no number of requests"),
        (b"busy 1e\n", "no number of requests"),
        (b"busy e\n", "no number of requests"),
        (b"busy 1.2.3\n", "no number of requests"),
        (b"busy " + b"0" * 33 + b"\n", "no number of requests"),
        (b"busy \xd9\xa3\n", "no number of requests"),
        (b"busy \n3\n", "no number of requests"),
        (b'busy{a="x" 3\n', "no number of requests"),
        (b'busy{a="x} 3\n', "no number of requests"),
        (b'busy{a="x"}3}\n', "no number of requests"),
        (b'busy{a="x"}{b="y"} 3\n', "no number of requests"),
        (b'busy 3\nbusy{a="x"} soon\n', "no number of requests"),
    ],
)
def test_what_is_no_number_is_unknown(body: bytes, said: str) -> None:
    """And not left out, nor taken for none: a part of the sum would look like less to do."""
    with pytest.raises(ValueError, match=said):
        ongoing(body, "busy")


def test_a_metric_that_is_missing_makes_the_sum_unknown() -> None:
    """One that is named wrongly is told by its name, and where that stands."""
    with pytest.raises(ValueError, match=r"no metric vllm:running .* spotrelay\.scaling\.ongoing\.metric"):
        ongoing(VLLM, WAITING, "vllm:running")


@pytest.mark.parametrize(
    "answer",
    [
        page(VLLM)[:-1],
        page(VLLM).replace(b"200 OK", b"404 Not Found"),
        page(VLLM).replace(b"200 OK", b"206 Partial Content"),
        page(VLLM).replace(b"HTTP/1.1", b"SSH-2.0"),
        b"HTTP/1.1 200 OK\r\n\r\n" + VLLM,  # without a length, and still open
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(VLLM), VLLM),
        b"HTTP/1.1 200 OK\r\n",
    ],
)
def test_a_part_of_a_page_is_unknown(answer: bytes) -> None:
    """The rest may have more, and an error page has none."""
    with pytest.raises(ValueError, match="no whole answer with status 200"):
        probe.ongoing_in(answer, (RUNNING, WAITING), closed=False)


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_a_page_may_come_in_chunks(size: int) -> None:
    """As servers send it that don't know its length: a value may be cut in two."""
    chunks = [VLLM[at : at + size] for at in range(0, len(VLLM), size)]
    body = b"".join(b"%x;ext\r\n%s\r\n" % (len(chunk), chunk) for chunk in [*chunks, b""])
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + body
    assert probe.ongoing_in(answer, (RUNNING, WAITING), closed=False) == 19.0
    closed = b"HTTP/1.0 200 OK\r\n\r\n" + VLLM
    assert probe.ongoing_in(closed, (RUNNING, WAITING), closed=True) == 19.0


@given(
    st.lists(
        st.sampled_from([b"busy", b"{", b"}", b'"', b"\\", b"\n", b" ", b"3", b"# TYPE ", b'a="b"', b"NaN"])
        | st.binary(max_size=6)
    ).map(b"".join)
)
def test_whatever_it_says_is_a_number_or_unknown(body: bytes) -> None:
    """No other exception, and no number that CloudWatch wouldn't take."""
    with suppress(ValueError):
        found = ongoing(body, "busy")
        assert found >= 0
        assert math.isfinite(found)


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"busy" * 100_000 + b"\n",
        b"busy{" + b'a="b",' * 100_000 + b"\n",
        b'busy{a="' + b"\\\\" * 200_000 + b"\n",
        b"busy" + b" " * 400_000 + b"x\n",
        b"busy " + b"1" * 400_000 + b"\n",
        b"#" + b" \t" * 200_000 + b"\n",
        b"busy 0 \n",
    ],
    ids=["empty lines", "a long name", "labels", "escapes", "spaces", "digits", "a comment", "many"],
)
def test_no_page_takes_long(line: bytes) -> None:
    """A mebibyte of what would make a careless parser try again and again is read in its length's time."""
    body = line * (probe.MAX_METRICS_BYTES // len(line))
    began = time.process_time()
    with suppress(ValueError):
        ongoing(body, "busy")
    assert time.process_time() - began < 5


def test_a_log_shows_little_of_it_and_nothing_harmful() -> None:
    """Its beginning, in printable ASCII."""
    shown = probe.shown(b"\x1b[31m\n\xff" + b"x" * 1000)
    assert shown.isascii()
    assert shown.isprintable()
    assert len(shown) < 2 * probe.SHOWN_BYTES


# Servers.


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Start a server that reads each request and sends these parts: a number is a pause in seconds."""

    class Server(ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 256

    with ExitStack() as stack:

        def start(*parts: bytes | float, heard: list[bytes] | None = None) -> str:
            class Handler(BaseRequestHandler):
                def handle(self) -> None:
                    with suppress(OSError):
                        got = self.request.recv(65_536)
                        if heard is not None:
                            heard.append(got)
                        for part in parts:
                            if isinstance(part, bytes):
                                self.request.sendall(part)
                            else:
                                time.sleep(part)

            server = stack.enter_context(Server(("127.0.0.1", 0), Handler))
            threading.Thread(target=server.serve_forever, args=(0.01,)).start()
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_address[1]}/metrics"

        yield start


def measure(urls: Mapping[str, str], timeout_s: float = PATIENCE_S) -> dict[str, Any]:
    """Invoke the function as the controller does."""
    event = {"urls": urls, "metrics": [RUNNING, WAITING], "timeout_s": timeout_s}
    return probe.handler(event, object())


def test_each_is_known_or_it_is_said_why_not(serve: Callable[..., str]) -> None:
    """One tells, one has another page, and one isn't there: each by itself."""
    answer = measure(
        {"i-1": serve(page(VLLM)), "i-2": serve(page(b"hello")), "i-3": "http://127.0.0.1:9/metrics"}
    )
    assert answer["ongoing"] == {"i-1": 19.0}
    assert set(answer["unknown"]) == {"i-2", "i-3"}
    assert "there is no metric" in answer["unknown"]["i-2"]
    assert "doesn't answer" in answer["unknown"]["i-3"]


def test_it_is_a_plain_get(serve: Callable[..., str]) -> None:
    """Of text, uncompressed, on a connection of its own; without the probe's headers, a token among them."""
    heard: list[bytes] = []
    measure({"i-1": serve(page(VLLM), heard=heard)})
    head, _, rest = heard[0].decode().partition("\r\n")
    assert head == "GET /metrics HTTP/1.1"
    names = {line.partition(":")[0] for line in rest.split("\r\n") if line}
    assert names == {"Host", "User-Agent", "Accept", "Connection"}


def test_who_never_ends_costs_the_others_nothing(serve: Callable[..., str]) -> None:
    """Slow ones, and one that pours: the time and the size that are read of each are bounded."""
    poured = [b"x" * (1 << 20)] * 50
    urls = {
        "i-1": serve(page(VLLM)[:100], 10.0),
        "i-2": serve(b"HTTP/1.1 200 OK\r\n\r\n" + VLLM, *poured),
        "i-3": serve(10.0),
        "i-4": serve(page(VLLM)),
    }
    began = time.monotonic()
    answer = measure(urls, 2.0)
    assert time.monotonic() - began < 9
    assert answer["ongoing"] == {"i-4": 19.0}
    assert set(answer["unknown"]) == {"i-1", "i-2", "i-3"}


def test_a_page_of_the_size_that_is_read_is_read(serve: Callable[..., str]) -> None:
    """And one byte more is too much: what is missing might have been requests."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
    room = probe.MAX_METRICS_BYTES - len(head % probe.MAX_METRICS_BYTES)
    urls = {f"i-{more}": serve(page(VLLM.ljust(room + more, b"#"))) for more in (0, 1)}
    answer = measure(urls)
    assert answer["ongoing"] == {"i-0": 19.0}
    assert f"of {probe.MAX_METRICS_BYTES} bytes at most" in answer["unknown"]["i-1"]


# What a silent replica has done.


def worked(urls: Mapping[str, str], pages: Mapping[str, str], timeout_s: float = 2.0) -> dict[str, Any]:
    """Probe these, and ask those that are silent what they have done."""
    count = {
        "urls": pages,
        "finished": ["vllm:generation_tokens_total"],
        "ongoing": [RUNNING, WAITING],
        "timeout_s": timeout_s,
    }
    return probe.handler({"urls": urls, "timeout_s": 0.3, "count": count}, object())


def test_who_is_silent_is_asked_what_it_has_done(serve: Callable[..., str]) -> None:
    """In the same invocation; not who answers, refuses, or isn't to be asked. Tokens may be many."""
    told = page(VLLM + b"vllm:generation_tokens_total 123456789012\n")
    urls = {"ready": serve(page(b"")), "refuses": serve(b"HTTP/1.1 500 Oh\r\n\r\n")}
    urls |= {"silent": serve(9.0), "starts": serve(9.0)}
    asked: list[bytes] = []
    pages = {id_: serve(told, heard=asked) for id_ in ("ready", "refuses", "silent")}
    answer = worked(urls, pages)
    assert answer["work"] == {"silent": [123456789012.0, 19.0]}
    assert (answer["answering"], answer["refusing"], len(asked)) == (["ready"], ["refuses"], 1)


def test_who_does_not_tell_all_tells_nothing(serve: Callable[..., str]) -> None:
    """A page without one of the two, a number that is none, no answer at all: no evidence."""
    urls = {f"i-{n}": serve(9.0) for n in range(4)}
    told = [page(VLLM), page(VLLM + b"vllm:generation_tokens_total NaN\n"), b"", 9.0]
    pages = {id_: serve(part) for id_, part in zip(urls, told, strict=True)}
    assert worked(urls, pages, 0.5)["work"] == {}
