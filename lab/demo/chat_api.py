"""OpenAI's chat completion API, as much of it as the demo needs: valid requests, and the shape of replies."""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


class ApiError(Exception):
    """A refused request: an HTTP status and OpenAI's error object."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        kind = "invalid_request_error" if status < 500 else "server_error"
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A valid chat completion request. `limit` is the most tokens it wants, if it says so."""

    prompt: str
    prompt_tokens: int
    stream: bool
    include_usage: bool
    limit: int | None


def parse_request(body: bytes, model: str) -> ChatRequest:
    """Reads and checks a request for `model`. Raises ApiError: 400, or 404 for another model."""
    try:
        document = json.loads(body)
    except ValueError as error:
        raise ApiError(400, f"the request body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ApiError(400, "the request body must be a JSON object")
    asked = _field(document, "model", str, required=True)
    if asked != model:
        raise ApiError(
            404,
            f"the model {asked!r} does not exist; this is {model!r}",
            param="model",
            code="model_not_found",
        )
    if _field(document, "n", int) not in (None, 1):
        raise ApiError(400, "n: only one choice per request is supported", param="n")
    texts = _texts(_field(document, "messages", list, required=True))
    options = _field(document, "stream_options", dict) or {}
    return ChatRequest(
        prompt=texts[-1],
        prompt_tokens=sum(len(text.split()) for text in texts),
        stream=bool(_field(document, "stream", bool)),
        include_usage=bool(_field(options, "include_usage", bool)),
        limit=_limit(document),
    )


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of at most `tokens` tokens; it says the prompt again and again, a word per token."""

    request: ChatRequest
    model: str
    tokens: int
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def words(self) -> Iterator[str]:
        """The reply's tokens."""
        words = itertools.cycle(f"You said: {self.request.prompt}".split())
        return (f"{word} " for word in itertools.islice(words, self.length))

    @property
    def length(self) -> int:
        """How many tokens it has."""
        return self.tokens if self.request.limit is None else min(self.tokens, self.request.limit)

    def completion(self) -> dict[str, Any]:
        """The body of an answer that isn't streamed."""
        message = {"role": "assistant", "content": "".join(self.words()).rstrip()}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason()}
        return self._envelope("chat.completion", [choice]) | {"usage": self._usage()}

    def first_chunk(self) -> bytes:
        """The event that opens a stream."""
        return self._event({"role": "assistant", "content": ""}, None)

    def chunk(self, word: str) -> bytes:
        """The event that carries one token."""
        return self._event({"content": word}, None)

    def last_chunks(self) -> bytes:
        """The events that end a stream."""
        usage = b""
        if self.request.include_usage:
            usage = _sse(self._envelope("chat.completion.chunk", []) | {"usage": self._usage()})
        return self._event({}, self._finish_reason()) + usage + b"data: [DONE]\n\n"

    def _event(self, delta: dict[str, str], finish_reason: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _sse(self._envelope("chat.completion.chunk", [choice]))

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def _usage(self) -> dict[str, int]:
        prompt, completion = self.request.prompt_tokens, self.length
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }

    def _finish_reason(self) -> str:
        return "length" if self.length < self.tokens else "stop"


def models(model: str, created: int) -> dict[str, Any]:
    """The body of GET /v1/models."""
    entry = {"id": model, "object": "model", "created": created, "owned_by": "spotrelay"}
    return {"object": "list", "data": [entry]}


def _sse(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def _field(document: dict[str, Any], name: str, kind: type, *, required: bool = False) -> Any:
    value = document.get(name)
    if value is None:
        if required:
            raise ApiError(400, f"{name}: missing", param=name)
        return None
    # In JSON true is no number, whatever Python thinks.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ApiError(400, f"{name}: expected {kind.__name__}, got {type(value).__name__}", param=name)
    return value


def _limit(document: dict[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        limit: int | None = _field(document, name, int)
        if limit is not None:
            if limit < 1:
                raise ApiError(400, f"{name}: expected at least 1, got {limit}", param=name)
            return limit
    return None


def _texts(messages: list[Any]) -> list[str]:
    if not messages:
        raise ApiError(400, "messages: expected at least one", param="messages")
    return [_text(message, f"messages[{number}]") for number, message in enumerate(messages)]


def _text(message: Any, place: str) -> str:
    if not isinstance(message, dict):
        raise ApiError(400, f"{place}: expected an object", param=place)
    if message.get("role") not in _ROLES:
        expected = ", ".join(sorted(_ROLES))
        raise ApiError(400, f"{place}.role: expected one of {expected}", param=f"{place}.role")
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
        for part in content
    ):
        return " ".join(part["text"] for part in content)
    raise ApiError(400, f"{place}.content: expected text", param=f"{place}.content")
