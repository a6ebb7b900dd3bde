"""Asks replicas whether they are ready, with the request that their service file gives.

Load balancers check with GET only, and a model server may answer that long before it can generate a token.
The function runs in the service's network, and can do nothing but reach its replicas.

No replica may hold up the answer about the others, whatever it sends: all are asked at the same time, under
one deadline, and MAX_BYTES are read of each. That is why this is written on sockets: the time-outs of
`http.client` hold for each read, and a server that sends a byte at a time never meets one.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Any

MAX_BYTES = 64 * 1024
"""The answer to a probe is one token: some hundred bytes, or tens of thousands if it is an embedding. Five
hundred replicas, which is what one call asks, may fill this without filling the function's memory."""

_URL = re.compile(r"http://(?P<host>[0-9.]+):(?P<port>[0-9]{1,5})(?P<path>/[!-~]*)")
_HEAD = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?![0-9]).*?\r?\n\r?\n", re.DOTALL)
_CHUNKED = re.compile(rb"^transfer-encoding:[^\n]*chunked", re.IGNORECASE | re.MULTILINE)
_LENGTH = re.compile(rb"^content-length:[ \t]*([0-9]{1,18})", re.IGNORECASE | re.MULTILINE)
_CHUNK = re.compile(rb"([0-9a-f]{1,16})[^\n]*\n", re.IGNORECASE)

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t -~\x80-\U0010ffff]*")
"""RFC 9110: a token, and a value on one line."""

_OURS = frozenset({"connection", "content-length", "transfer-encoding"})
"""Headers that say how the request is sent, which no file may."""

_Probe = tuple[tuple[str, int], bytes]
"""Where to connect to, and what to send."""


def handler(event: dict[str, Any], context: object) -> dict[str, list[str]]:  # noqa: ARG001 - Lambda's signature
    """Of `urls` (instance → URL) those that answer with 200 within `timeout_s`.

    They are sent a POST of `post_data`, or a GET if there is none. The time counts to the end of the answers.
    Redirects aren't followed, and no proxy is used.

    Raises:
        ValueError: one of the URLs isn't http://<private IPv4 address>:<port>/…, or a header isn't one line.
            Then none is asked.
    """
    data, headers = event.get("post_data"), event.get("headers", {})
    body = None if data is None else json.dumps(data).encode()
    probes = {id_: _probe(url, headers, body) for id_, url in event["urls"].items()}
    return {"answering": asyncio.run(_answering(probes, event["timeout_s"]))}


async def _answering(probes: Mapping[str, _Probe], timeout_s: float) -> list[str]:
    deadline = asyncio.get_running_loop().time() + timeout_s
    answers = await asyncio.gather(*(_answers(probe, deadline) for probe in probes.values()))
    return [id_ for id_, good in zip(probes, answers, strict=True) if good]


async def _answers(probe: _Probe, deadline: float) -> bool:
    address, request = probe
    loop = asyncio.get_running_loop()
    answer = bytearray()
    closed = False
    # An OSError is also the deadline. However it ended: what was received is a good answer, or it isn't.
    with suppress(OSError), socket.socket() as connection:
        connection.setblocking(False)
        async with asyncio.timeout_at(deadline):
            await loop.sock_connect(connection, address)
            await loop.sock_sendall(connection, request)
            while not closed and len(answer) < MAX_BYTES:
                piece = await loop.sock_recv(connection, MAX_BYTES - len(answer))
                answer += piece
                closed = not piece
    return is_good(bytes(answer), closed=closed)


def is_good(answer: bytes, *, closed: bool) -> bool:
    """Whether it is a whole HTTP answer with status 200, or the first MAX_BYTES of one.

    Headers without an end are no answer, nor is a body that ends before it should. `closed` says that the
    server closed the connection behind it: where the headers don't say how long the body is, that is its end.
    """
    head = _HEAD.match(answer)
    while head and head[1].startswith(b"1"):  # what may precede an answer
        head = _HEAD.match(answer, head.end())
    if not head or head[1] != b"200":
        return False
    if len(answer) >= MAX_BYTES:
        return True
    if _CHUNKED.search(head[0]):
        return _has_last_chunk(answer, head.end())
    if length := _LENGTH.search(head[0]):
        return len(answer) - head.end() >= int(length[1])
    return closed


def _has_last_chunk(answer: bytes, at: int) -> bool:
    while chunk := _CHUNK.match(answer, at):
        size = int(chunk[1], 16)
        if size == 0:
            return True
        at = chunk.end() + size + len(b"\r\n")
    return False


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
    # Link-local addresses are EC2's own services, such as the one that gives out an instance's credentials.
    return not (
        address.is_global
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
    )
