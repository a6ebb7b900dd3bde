"""Asks replicas whether they are ready, with the request of their service file, and how much they have to do.

Load balancers check with GET only, and a model server may answer that long before it can generate a token.
Nor do they know how many requests a server has in progress or waiting: the server's own metrics do.
The function runs in the service's network, and can do nothing but reach its replicas.

No replica may hold up the answer about the others, whatever it sends: all are asked at the same time, under
one deadline, and so many bytes are read of each. That is why this is written on sockets: the time-outs of
`http.client` hold for each read, and a server that sends a byte at a time never meets one.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Any

MAX_BYTES = 64 * 1024
"""The answer to a probe is one token: some hundred bytes, or tens of thousands if it is an embedding. Five
hundred replicas, which is what one call asks, may fill this without filling the function's memory."""

MAX_METRICS_BYTES = 1024 * 1024
"""vLLM's page of metrics has some 60 KiB for each engine. One call reads a hundred at the same time."""

MAX_REQUESTS = 1e9
"""No server has more: what says so is broken. It keeps sums far from what CloudWatch doesn't take."""

MAX_FINISHED = 1e15
"""The same for what it has finished since it started, be it tokens. Every whole number below is exact."""

_URL = re.compile(r"http://(?P<host>[0-9.]+):(?P<port>[0-9]{1,5})(?P<path>/[!-~]*)")
_HEAD = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?![0-9]).*?\r?\n\r?\n", re.DOTALL)
_CHUNKED = re.compile(rb"^transfer-encoding:[^\n]*chunked", re.IGNORECASE | re.MULTILINE)
_LENGTH = re.compile(rb"^content-length:[ \t]*([0-9]{1,18})", re.IGNORECASE | re.MULTILINE)
_CHUNK = re.compile(rb"([0-9a-f]{1,8})(?![0-9a-f])[^\n]*\n", re.IGNORECASE)
"""Far more than is read of any answer: a longer number is no length, and might be none that Python takes."""

_SAMPLE = re.compile(
    rb"""[ \t]*+(?:\{(?:[^"{}]|"(?:[^"\\]|\\.)*+")*+\}[ \t]*+)?+([0-9.eE+-]{1,32})(?:[ \t\r].*)?"""
)
"""What stands behind a metric's name: labels, a value, and perhaps its time. `NaN` is no number of requests.
All repetitions are possessive: no line takes longer than its length."""

_CRASH = re.compile(rb"^spotrelay-crash:[ \t]*([0-9]{1,4})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
"""An instance whose server keeps ending answers in its place: see `spotrelay.file.instance.crash`."""

TOLD_BYTES = 1000
"""Of what it said last: its row has it, and is read with each tick."""

_OVERLOADED = frozenset({b"429", b"503"})
"""RFC 6585 and RFC 9110: too many requests, and *currently unable*. Servers with a full queue answer so."""

SHOWN_BYTES = 80

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t -~\x80-\U0010ffff]*")
"""RFC 9110: a token, and a value on one line."""

_OURS = frozenset({"connection", "content-length", "transfer-encoding"})
"""Headers that say how the request is sent, which no file may."""

_Answer = tuple[bytes, bool]
"""What was received, and whether the server closed the connection behind it."""

_Probe = tuple[tuple[str, int], bytes]
"""Where to connect to, and what to send."""


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:  # noqa: ARG001 - Lambda's signature
    """Who of `urls` (instance → URL) is ready or, if the event has `metrics`, how many requests each has.

    `answering` are those that answer with 200 within `timeout_s`. They are sent a POST of `post_data`, or a
    GET if there is none. The time counts to the end of the answers. Redirects aren't followed, and no proxy
    is used. `refusing` are those that answer by then with an error that isn't about load, or refuse the
    connection. `crashing` are those whose instance answers that the server keeps ending: how often it has,
    and what it said last. `status` is the status line of those that refuse in words. Of the rest, those that
    `count` has URLs for are asked what they have to do: `work` has what they finished and what they have, by
    instance, as far as they tell it.

    With `metrics`, the names of some in the Prometheus text format: `ongoing` has the sum of these by
    instance, and `unknown` why somebody's isn't known.

    Raises:
        ValueError: one of the URLs isn't http://<private IPv4 address>:<port>/…, or a header isn't one line.
            Then none is asked.
    """
    urls, timeout_s = event["urls"], event["timeout_s"]
    if metrics := event.get("metrics"):
        probes = {id_: _probe(url, {"Accept": "text/plain"}, None) for id_, url in urls.items()}
        return _measured(asyncio.run(_answers(probes, timeout_s, MAX_METRICS_BYTES)), metrics)
    data, headers = event.get("post_data"), event.get("headers", {})
    body = None if data is None else json.dumps(data).encode()
    probes = {id_: _probe(url, headers, body) for id_, url in urls.items()}
    answers = asyncio.run(_answers(probes, timeout_s, MAX_BYTES))
    said: dict[str, Any] = {"answering": [], "refusing": []}
    silent: list[str] = []
    for id_, (answer, closed) in answers.items():
        said.get(_kind(answer, closed=closed), silent).append(id_)
        for kind, words in _told(answer, closed=closed).items():
            said.setdefault(kind, {})[id_] = words
    if count := event.get("count"):
        said["work"] = _worked(count, silent)
    return said


def _kind(answer: bytes, *, closed: bool) -> str:
    """`answering`, `refusing`, or nothing of both."""
    try:
        if is_good(answer, closed=closed):
            return "answering"
        return "refusing" if is_refusal(answer, closed=closed) else ""
    except Exception:  # noqa: BLE001 - what can't be read of one is that one's silence
        return ""


def _told(answer: bytes, *, closed: bool) -> dict[str, Any]:
    """`crashing` or `status`, if an answer says why the replica isn't ready."""
    try:
        head = _first_head(answer)
        if head is None or head[1] < b"400":
            return {}
        if crash := _CRASH.search(head[0]):
            words = _body(answer, head, closed=closed) or b""
            return {"crashing": [int(crash[1]), _plain(words[-TOLD_BYTES:])]}
        line = head[0].partition(b"\n")[0].partition(b" ")[2]
        return {"status": _plain(line[:SHOWN_BYTES])} if is_refusal(answer, closed=closed) else {}
    except Exception:  # noqa: BLE001 - as in `_kind`
        return {}


def _plain(text: bytes) -> str:
    """As text that no terminal and no table takes for anything else; lines stay lines."""
    lines = text.decode("utf-8", "replace").splitlines()
    return "\n".join("".join(c if c.isprintable() else " " for c in line).rstrip() for line in lines).strip()


def _worked(count: Mapping[str, Any], silent: Sequence[str]) -> dict[str, list[float]]:
    """What silent replicas have finished and have to do; of one that doesn't tell both, nothing."""
    urls = {id_: count["urls"][id_] for id_ in silent if id_ in count["urls"]}
    probes = {id_: _probe(url, {"Accept": "text/plain"}, None) for id_, url in urls.items()}
    answers = asyncio.run(_answers(probes, count["timeout_s"], MAX_METRICS_BYTES))
    finished = _measured(answers, count["finished"], MAX_FINISHED)["ongoing"]
    ongoing = _measured(answers, count["ongoing"])["ongoing"]
    return {id_: [finished[id_], ongoing[id_]] for id_ in finished.keys() & ongoing.keys()}


async def _answers(probes: Mapping[str, _Probe], timeout_s: float, most: int) -> dict[str, _Answer]:
    deadline = asyncio.get_running_loop().time() + timeout_s
    asked = (_answer(probe, deadline, most) for probe in probes.values())
    answers = await asyncio.gather(*asked, return_exceptions=True)
    # Whatever goes wrong with one of them is that one's silence.
    told = ((b"", False) if isinstance(answer, BaseException) else answer for answer in answers)
    return dict(zip(probes, told, strict=True))


async def _answer(probe: _Probe, deadline: float, most: int) -> _Answer:
    address, request = probe
    loop = asyncio.get_running_loop()
    answer = bytearray()
    closed = False
    # An OSError is also the deadline. However it ended: what was received is a good answer, or it isn't.
    with suppress(OSError), socket.socket() as connection:
        connection.setblocking(False)
        async with asyncio.timeout_at(deadline):
            try:
                await loop.sock_connect(connection, address)
                await loop.sock_sendall(connection, request)
                while not closed and len(answer) < most:
                    piece = await loop.sock_recv(connection, min(most - len(answer), MAX_BYTES))
                    answer += piece
                    closed = not piece
            except ConnectionError:
                closed = not answer  # what is cut in the middle has no end
    return bytes(answer), closed


def is_good(answer: bytes, *, closed: bool) -> bool:
    """Whether it is a whole HTTP answer with status 200, or the first MAX_BYTES of one.

    Headers without an end are no answer, nor is a body that ends before it should. `closed` says that the
    server closed the connection behind it: where the headers don't say how long the body is, that is its end.
    """
    head = _head_of(answer)
    if head is None:
        return False
    return len(answer) >= MAX_BYTES or _body(answer, head, closed=closed) is not None


def is_refusal(answer: bytes, *, closed: bool) -> bool:
    """Whether it is an error, or the connection ended without a word.

    A server that says that it has too much to do fails for a reason of which there would only be more.
    """
    head = _first_head(answer)
    if head is None:
        return closed and not answer
    return head[1] >= b"400" and head[1] not in _OVERLOADED


def _first_head(answer: bytes) -> re.Match[bytes] | None:
    """The headers of an answer, after those that may precede it."""
    head = _HEAD.match(answer)
    while head and head[1].startswith(b"1"):
        head = _HEAD.match(answer, head.end())
    return head


def _head_of(answer: bytes) -> re.Match[bytes] | None:
    """The headers of an answer with status 200."""
    head = _first_head(answer)
    return head if head and head[1] == b"200" else None


def _body(answer: bytes, head: re.Match[bytes], *, closed: bool) -> bytes | None:
    """The whole body; None if it isn't all there."""
    if _CHUNKED.search(head[0]):
        return _unchunked(answer, head.end())
    if length := _LENGTH.search(head[0]):
        end = head.end() + int(length[1])
        return answer[head.end() : end] if len(answer) >= end else None
    return answer[head.end() :] if closed else None


def _unchunked(answer: bytes, at: int) -> bytes | None:
    parts: list[bytes] = []
    while chunk := _CHUNK.match(answer, at):
        size = int(chunk[1], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(answer[chunk.end() : chunk.end() + size])
        at = chunk.end() + size + len(b"\r\n")
    return None


def _measured(
    answers: Mapping[str, _Answer], metrics: Sequence[str], most: float = MAX_REQUESTS
) -> dict[str, Any]:
    ongoing: dict[str, float] = {}
    unknown: dict[str, str] = {}
    for id_, (answer, closed) in answers.items():
        try:
            ongoing[id_] = ongoing_in(answer, metrics, closed=closed, most=most)
        except ValueError as error:
            unknown[id_] = str(error)
        except Exception as error:  # noqa: BLE001 - as in `_kind`
            unknown[id_] = f"its answer can't be read: {error!r}"
    return {"ongoing": ongoing, "unknown": unknown}


def ongoing_in(answer: bytes, metrics: Sequence[str], *, closed: bool, most: float = MAX_REQUESTS) -> float:
    """The sum of these metrics over all their labels, none more than `most`, in a server's answer.

    A metric that is only announced counts as 0: a server may have no value of it before its first request.

    Raises:
        ValueError: that isn't known. A part of the sum would look like less to do.
    """
    if not answer:
        raise ValueError("it doesn't answer in time")
    head = _head_of(answer)
    body = head and _body(answer, head, closed=closed)
    if body is None:
        raise ValueError(
            f"no whole answer with status 200, of {MAX_METRICS_BYTES} bytes at most, but {shown(answer)}"
        )
    text = b"\n" + body + b"\n"
    return sum(sum(_values(text, name, most)) for name in metrics)


def _values(text: bytes, name: str, most: float) -> Iterator[float]:
    """A metric's value for each combination of labels."""
    named = re.escape(name.encode())
    found = False
    for line in re.finditer(rb"\n[ \t]*+" + named + rb"(?=[ \t{])([^\n]*+)", text):
        found = True
        sample = _SAMPLE.fullmatch(line[1])
        value = _number(sample[1], most) if sample else None
        if value is None:
            raise ValueError(f"{name} has no number of requests: {shown(line[1])}")
        yield value
    if not found and not re.search(rb"\n#[ \t]++(?:TYPE|HELP)[ \t]++" + named + rb"[ \t\r\n]", text):
        raise ValueError(f"there is no metric {name} in the answer: see spotrelay.scaling.ongoing.metric")


def _number(text: bytes, most: float) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= most else None


def shown(text: bytes) -> str:
    """The beginning of what a server sent, harmless in a log."""
    return ascii(text[:SHOWN_BYTES].decode("latin-1"))


def _probe(url: str, headers: Mapping[str, str], body: bytes | None) -> _Probe:
    parts = _URL.fullmatch(url)
    if not parts or not _may_be_a_replica(parts["host"]) or not 0 < int(parts["port"]) < 1 << 16:
        raise ValueError(
            f"a replica is probed at http://<private IPv4 address>:<port>/<path>, not at {url!r}"
        )
    if wrong := [name for name, value in headers.items() if not _HEADER.fullmatch(f"{name}: {value}")]:
        raise ValueError(f"a header is one line, and {wrong[0]!r} isn't")
    sent = {"Host": f"{parts['host']}:{parts['port']}", "User-Agent": "SpotRelay"}
    if body is not None:
        sent |= {"Content-Type": "application/json"}
    given = {name.lower() for name in headers}
    sent = {name: value for name, value in sent.items() if name.lower() not in given}
    sent |= {name: value for name, value in headers.items() if name.lower() not in _OURS}
    if body is not None:
        sent |= {"Content-Length": str(len(body))}
    # A server that keeps it open all the same is waited for until the deadline.
    sent |= {"Connection": "close"}
    lines = [f"{'GET' if body is None else 'POST'} {parts['path']} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in sent.items()]
    return (parts["host"], int(parts["port"])), "\r\n".join((*lines, "", "")).encode() + (body or b"")


def _may_be_a_replica(host: str) -> bool:
    try:
        address = IPv4Address(host)
    except ValueError:
        return False
    # Link-local addresses are EC2's own services, such as the one that gives out an instance's credentials;
    # loopback is this function itself, whose runtime interface gives out its events and takes its answers.
    return not (
        address.is_global
        or address.is_link_local
        or address.is_loopback
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
    )
