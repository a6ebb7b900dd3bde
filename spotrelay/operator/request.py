"""A request to a service as its clients send one: the way in, what to send, and what comes back."""

from __future__ import annotations

import codecs
import json
import math
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from spotrelay.messages import harmless
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.spec import ReadinessProbe

CHAT_PATH = "/v1/chat/completions"
MODELS_PATH = "/v1/models"

PROMPT = "Hello! Who are you?"
"""What a chat is asked where nobody says."""

CONNECT_S = 10.0
"""A network without a route drops what one sends: nobody wants to wait for the system's own two minutes."""

LONGEST_SILENCE_S = 4_060.0
"""The longest idle time-out that a load balancer can have, 4,000 s, and a minute: it answers 504 itself.
https://docs.aws.amazon.com/elasticloadbalancing/latest/application/edit-load-balancer-attributes.html"""

REPLICA_HEADER = "x-replica"
"""In which a server may say who it is: Elastic Load Balancing doesn't tell to whom it sent a request."""

PIECE = 1 << 16
"""Bytes that are read at once, at most."""

ERROR_SHOWN = 2_000
"""Bytes of an error's body: more than any sentence, less than a page of HTML would flood a terminal with."""

INTERNAL = "internal-"
"""How the name of a load balancer without public addresses begins."""

OF_BALANCERS = (".elb.amazonaws.com", ".elb.amazonaws.com.cn")
"""How the names of load balancers end."""

NOT_FROM_HERE = (
    "its load balancer is internal, and this machine has no way to it: docs/networking.md, Reaching an"
    " internal service, has the ways"
)


@dataclass(frozen=True, slots=True)
class Entrance:
    """Where clients reach a service that has a load balancer of its own."""

    address: str
    """With its scheme: the load balancer's own name, or the domain that the certificate is for."""
    endpoint: str
    """The load balancer's own name; empty: nobody here knows it."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Each API key's name, and the ARN of the secret that holds it; none: no key is asked for."""

    @classmethod
    def of(cls, outputs: Mapping[str, str]) -> Entrance | None:
        """By the outputs of the service's stack; None: the load balancer isn't SpotRelay's."""
        address, endpoint = outputs.get("Address"), outputs.get("Endpoint")
        if address is None or endpoint is None:
            return None
        keys = {k.removeprefix(_KEY): arn for k, arn in outputs.items() if k.startswith(_KEY)}
        return cls(address, endpoint, keys)

    @classmethod
    def at(cls, address: str) -> Entrance:
        """By the address alone, which the service's document has: behind a domain it hides the endpoint."""
        name = urlsplit(address).hostname or ""
        return cls(address, name if name.endswith(OF_BALANCERS) else "")

    @property
    def is_internal(self) -> bool:
        """Whether only networks with a route into the VPC can reach it."""
        return self.endpoint.startswith(INTERNAL)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What clients still lack."""
        scheme, _, host = self.address.partition("://")
        if host != self.endpoint:
            return (f"{host} must lead to {self.endpoint}: by a CNAME or an alias record in your DNS",)
        if scheme == "https":
            return (
                "no certificate is for that name, so clients can't verify it: say which name yours is for,"
                " spotrelay.domain in the service file",
            )
        return ()


_KEY = "ApiKey"
"""How the output that names a key's secret begins."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_chat: bool = False
    """Whether it asks for a stream of a chat, in the form of OpenAI's API."""


def chat(model: str, prompt: str, path: str = CHAT_PATH) -> Request:
    """A streamed chat in the form of OpenAI's API."""
    return _chat(path, {"model": model}, prompt, {})


def of_probe(probe: ReadinessProbe | None, prompt: str | None = None) -> Request:
    """What the service's readiness probe asks, as a client would; `prompt`: what a chat is asked instead."""
    if probe is None:
        return Request("GET", "/")
    if is_chat(probe):
        # The probe asks for one token only.
        fields = {k: v for k, v in (probe.post_data or {}).items() if k not in _SHORTENED}
        return _chat(probe.path, fields, prompt or PROMPT, probe.headers)
    if probe.post_data is None:
        return Request("GET", probe.path, headers=probe.headers)
    body = json.dumps(probe.post_data, ensure_ascii=False).encode()
    return Request("POST", probe.path, body, {**_JSON, **probe.headers})


def is_chat(probe: ReadinessProbe | None) -> bool:
    """Whether the probe is a chat in the form of OpenAI's API."""
    data = probe.post_data if probe else None
    return bool(probe and probe.path.endswith("/chat/completions") and data and "messages" in data)


def _chat(path: str, fields: Mapping[str, Any], prompt: str, headers: Mapping[str, str]) -> Request:
    body = {**fields, "messages": [{"role": "user", "content": prompt}], "stream": True}
    text = json.dumps(body, ensure_ascii=False)
    return Request("POST", path, text.encode(), {**_JSON, **headers}, is_chat=True)


_JSON = {"Content-Type": "application/json"}

_SHORTENED = ("max_tokens", "max_completion_tokens")


def curl(entrance: Entrance, request: Request, via: str | None) -> str:
    """A command that sends it; `via`: see `Sender`."""
    base, host = _base(entrance, via)
    words = ["curl", *(["-N"] if request.is_chat else []), shlex.quote(base + request.path)]
    if request.method != ("GET" if request.body is None else "POST"):
        words += ["-X", shlex.quote(request.method)]
    said = {**host, **{k: v for k, v in request.headers.items() if not (entrance.keys and _is_key(k))}}
    words += (w for k, v in said.items() for w in ("-H", shlex.quote(f"{k}: {v}")))
    if entrance.keys:
        words += ["-H", f'"Authorization: Bearer {_KEY_READ.format(next(iter(entrance.keys.values())))}"']
    if request.body is not None:
        words += ["-d", shlex.quote(request.body.decode("utf-8", "replace"))]
    return " ".join(words)


_KEY_READ = "$(aws secretsmanager get-secret-value --secret-id {} --query SecretString --output text)"


def _is_key(header: str) -> bool:
    return header.lower() == "authorization"


def _base(entrance: Entrance, via: str | None) -> tuple[str, dict[str, str]]:
    """What a path is put behind, and the header that says whom the request is for."""
    host = entrance.endpoint or urlsplit(entrance.address).netloc
    return (via.rstrip("/"), {"Host": host}) if via else (entrance.address, {})


def key_of(clients: Clients, entrance: Entrance) -> str | None:
    """The first of the keys that the load balancer asks for; None: it asks for none.

    Raises:
        PortError: the secret can't be read.
    """
    for arn in entrance.keys.values():
        with translated():
            return str(clients.secrets_manager.get_secret_value(SecretId=arn)["SecretString"])
    return None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of an answer; what is beyond is left."""

    silence_s: float = LONGEST_SILENCE_S
    """Until it begins, and between two parts of it."""
    longest_s: float = math.inf
    """From when the request was sent."""
    size: float = math.inf
    """Bytes."""


UNBOUNDED = Bounds()


class UnansweredError(Exception):
    """No answer came: why, and what to do."""


_READABLE = ("text/", "application/json", "application/problem+json", "application/xml")
"""How the types of content begin that people can read."""


class Exchange:
    """A request that is being answered. Its times, in seconds, count from when it was sent."""

    def __init__(
        self, response: urllib3.BaseHTTPResponse, request: Request, started: float, bounds: Bounds = UNBOUNDED
    ) -> None:
        self._response = response
        self._bounds = bounds
        self._request = request
        self._started = started
        self.status = response.status
        self.reason = response.reason or ""
        self.content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        self.replica = response.headers.get(REPLICA_HEADER)
        """Who answered, where the server says so. Elastic Load Balancing doesn't."""
        self.first_byte_s: float | None = None
        """None before any of the body has come."""
        self.total_s = 0.0
        self.cut = ""
        """Why the answer isn't all there; empty if it is."""

    @property
    def is_good(self) -> bool:
        """Whether it was served, to its end."""
        return 200 <= self.status < 300 and not self.cut

    @property
    def is_text(self) -> bool:
        """Whether people can read it."""
        return self._request.is_chat or self.content_type.startswith(_READABLE)

    def pieces(self) -> Iterator[bytes]:
        """The answer as it comes: of a chat what the model says, else the body."""
        is_text = self._request.is_chat and 200 <= self.status < 300
        if is_text and self.content_type == "text/event-stream":
            yield from self._said_in_events()
        elif is_text:
            yield _said(b"".join(self._body()))
        else:
            yield from self._body()
        self.total_s = time.monotonic() - self._started
        if self.first_byte_s is None:  # there is no body
            self.first_byte_s = self.total_s

    def close(self) -> None:
        """Read no more of it."""
        self._response.close()

    def texts(self) -> Iterator[str]:
        """The same for people: it moves no terminal's cursor, and half a character comes with its rest."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for piece in self.pieces():
            if text := harmless(decoder.decode(piece)):
                yield text

    def _body(self) -> Iterator[bytes]:
        size = 0
        try:
            while piece := self._response.read1(PIECE):
                after_s = time.monotonic() - self._started
                if self.first_byte_s is None:
                    self.first_byte_s = after_s
                yield piece
                size += len(piece)
                if size >= self._bounds.size:
                    self.cut = f"it is longer than {self._bounds.size / 1024:.0f} KiB, and the rest was left"
                    return
                if after_s >= self._bounds.longest_s:
                    self.cut = f"it takes longer than {self._bounds.longest_s:.0f} s, and the rest was left"
                    return
        except ReadTimeoutError:
            self.cut = f"nothing came for {self._bounds.silence_s:.0f} s"
        except (HTTPError, OSError) as error:
            self.cut = f"the connection ended in the middle of the answer: {_last_words(error)}"

    def _said_in_events(self) -> Iterator[bytes]:
        rest, is_done = b"", False
        for piece in self._body():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if not line.startswith(b"data:"):
                    continue
                data = line.removeprefix(b"data:").strip()
                is_done = is_done or data == b"[DONE]"
                said = b"" if data == b"[DONE]" else self._said_in(data)
                if said:
                    yield said
        if not is_done and not self.cut:
            self.cut = "the stream ended without [DONE]"

    def _said_in(self, data: bytes) -> bytes:
        try:
            chunk = json.loads(data)
            if error := chunk.get("error"):
                why = error.get("message", error) if isinstance(error, dict) else error
                self.cut = f"the server gave up: {why}"
                return b""
            return "".join(_delta(choice) for choice in chunk["choices"]).encode()
        except (ValueError, KeyError, TypeError, AttributeError):
            self.cut = f"the stream has what is no chat: {data[:80].decode('utf-8', 'replace')}"
            return b""


def _delta(choice: Mapping[str, Any]) -> str:
    delta = choice.get("delta") or {}
    # What a model thinks before it answers has a name of its own, on which servers don't agree: without it a
    # reasoning model would be silent for its first seconds.
    return "".join(delta.get(name) or "" for name in ("reasoning_content", "reasoning", "content"))


def _said(body: bytes) -> bytes:
    """What the model says where the server doesn't stream; the body where it is no chat."""
    try:
        return "".join(c["message"].get("content") or "" for c in json.loads(body)["choices"]).encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        return body


class Sender:
    """Sends requests to a service, each once: nothing is repeated, and no redirect is followed."""

    def __init__(
        self,
        entrance: Entrance,
        key: str | None = None,
        via: str | None = None,
        bounds: Bounds = UNBOUNDED,
    ) -> None:
        """`via`: an address that stands for all of AWS, load balancers included, as a local cloud's."""
        self._entrance = entrance
        self._bounds = bounds
        self._base, self._host = _base(entrance, via)
        self._key = {"Authorization": f"Bearer {key}"} if key else {}
        self._pool = urllib3.PoolManager(retries=False)

    def send(self, request: Request) -> Exchange:
        """Send it, and wait until the answer begins.

        Raises:
            UnansweredError: none does.
        """
        own = {k: v for k, v in request.headers.items() if not (self._key and _is_key(k))}
        started = time.monotonic()
        try:
            response = self._pool.request(
                request.method,
                self._base + request.path,
                body=request.body,
                headers={**self._host, **own, **self._key},
                timeout=urllib3.Timeout(connect=CONNECT_S, read=self._bounds.silence_s),
                preload_content=False,
                redirect=False,
            )
        except (HTTPError, OSError) as error:
            raise UnansweredError(self._why(error)) from error
        return Exchange(response, request, started, self._bounds)

    def _why(self, error: Exception) -> str:
        where = urlsplit(self._base).hostname or self._base
        is_internal = self._entrance.is_internal and where == self._entrance.endpoint
        match error:
            case NameResolutionError():
                why = f"{where} has no address in the DNS that this machine asks"
                if where != self._entrance.endpoint:
                    lead = self._entrance.endpoint or "the load balancer"
                    return f"{why}: it must lead to {lead}, by a CNAME or an alias record"
                if is_internal:
                    return f"{why}: {NOT_FROM_HERE}"
                return f"{why}: a new load balancer's name takes a minute; has the service been removed?"
            case SSLError() if "certificate" in str(error).lower():
                lacks = next(iter(self._entrance.remarks), "") if where == self._entrance.endpoint else ""
                return f"{where}: its certificate can't be verified: {lacks or _last_words(error)}"
            case NewConnectionError():  # urllib3 takes it for one of the next kind, too
                why = f"{where} can't be connected to ({_last_words(error)})"
                if is_internal:
                    return f"{why}: {NOT_FROM_HERE}"
                return f"{why}: is it still deployed, and is this machine's network up?"
            case ConnectTimeoutError():
                why = f"{where} didn't answer within {CONNECT_S:.0f} s"
                if is_internal:
                    return f"{why}: {NOT_FROM_HERE}"
                return (
                    f"{why}: is its load balancer internal, and do allowed_cidrs and firewalls let this"
                    " machine in? docs/networking.md has the ways"
                )
            case ReadTimeoutError():
                return f"{where} said nothing for {self._bounds.silence_s:.0f} s"
            case _:
                return f"{where} ended the connection without an answer: {_last_words(error)}"


def _last_words(error: Exception) -> str:
    """What an error of urllib3 says, without the objects that it names before."""
    return str(error).rpartition(">: ")[2] or str(error)


def remedy(status: int, service: str, entrance: Entrance) -> str:
    """What an answer that isn't 2xx means, and what to do about it; empty where the server's words say all.

    Which of them are the load balancer's own:
    https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-troubleshooting.html
    """
    match status:
        case 301 | 302 | 303 | 307 | 308:
            return "the server sends its clients elsewhere, which isn't followed: name the other path"
        case 401 if entrance.keys:
            return (
                f"the key {next(iter(entrance.keys))} wasn't taken. A new key takes half a minute; one that"
                " was changed by hand has no effect (docs/networking.md, API keys)"
            )
        case 401:
            return "the server behind the load balancer asks for a key of its own: send it with curl"
        case 403:
            return "the server, or a firewall before it, doesn't let this request in"
        case 404 | 405:
            return "the server doesn't know this path, or not with this method: name another"
        case 502:
            return (
                "the replica hung up, or answered what is no HTTP: it has crashed, or ended in the middle."
                f" spotrelay status {service} shows the replicas, spotrelay logs {service} ID what one says"
            )
        case 503:
            return f"no replica is in rotation, or the server says it is full: spotrelay status {service}"
        case 504:
            return (
                "the replica sent nothing for as long as the load balancer waits: stream the answer, or raise"
                " spotrelay.idle_timeout_seconds in the service file"
            )
        case _:
            return ""
