"""The demo's chat server, from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import urllib3

from lab.demo.chat_server import parse_settings
from tests.local_data_plane.support import CHAT, PATIENCE_S, PORT, free_address, wait_until

COMMAND = [sys.executable, "-m", "lab.demo.chat_server"]
HTTP = urllib3.PoolManager(retries=False, timeout=PATIENCE_S)


@contextmanager
def chat_server(**environment: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server that listens, its URL and its process."""
    address = free_address()
    url = f"http://{address}:{PORT}"
    settings = {"HOST": address, "PORT": str(PORT), "TOKENS": "3", "TOKEN_S": "0", **environment}
    with subprocess.Popen(COMMAND, env={**os.environ, **settings}) as process:
        try:
            wait_until(lambda: process.poll() is None and listens(url), "the server listens")
            yield url, process
        finally:
            process.kill()


def listens(url: str) -> bool:
    """Whether anybody answers."""
    try:
        HTTP.request("GET", url + "/metrics")
    except urllib3.exceptions.HTTPError:
        return False
    return True


def healthy(url: str) -> bool:
    """Whether the model is loaded."""
    return HTTP.request("GET", url + "/health").status == 200


def ask(url: str, body: Any) -> urllib3.BaseHTTPResponse:
    """A chat completion request with this JSON, or these bytes, as its body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HTTP.request("POST", url + "/v1/chat/completions", body=data)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A loaded server's URL."""
    with chat_server() as (url, _):
        wait_until(lambda: healthy(url), "the server is loaded")
        yield url


def test_streaming(server: str) -> None:
    """A stream is chunks in OpenAI's shape: role, tokens, the reason to stop, usage if wanted, [DONE]."""
    response = ask(server, CHAT | {"stream_options": {"include_usage": True}})
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["x-replica"] == server.removeprefix("http://")
    *events, end = response.data.decode().removesuffix("\n\n").split("\n\n")
    assert end == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert {(chunk["object"], chunk["model"]) for chunk in chunks} == {("chat.completion.chunk", "demo")}
    assert len({chunk["id"] for chunk in chunks}) == 1
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == "You said: hello "
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}


def test_whole_answer(server: str) -> None:
    """Without streaming the answer comes whole; it stops at the limit that was asked for."""
    answer = ask(server, CHAT | {"stream": False, "max_tokens": 2}).json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "You said:"}
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def test_models(server: str) -> None:
    """The model list has the one model there is."""
    (model,) = HTTP.request("GET", server + "/v1/models").json()["data"]
    assert (model["id"], model["object"]) == ("demo", "model")


MESSAGES = CHAT["messages"]


@pytest.mark.parametrize(
    ("body", "status", "said", "param"),
    [
        (b"{", 400, "not JSON", None),
        (b"\xff", 400, "not JSON", None),
        (b"[]", 400, "must be a JSON object", None),
        ({"messages": MESSAGES}, 400, "model: missing", "model"),
        ({"model": 3, "messages": MESSAGES}, 400, "model: expected str, got int", "model"),
        ({"model": "gpt-4", "messages": MESSAGES}, 404, "'gpt-4' does not exist", "model"),
        ({"model": "demo"}, 400, "messages: missing", "messages"),
        ({"model": "demo", "messages": []}, 400, "at least one", "messages"),
        ({"model": "demo", "messages": ["hi"]}, 400, "expected an object", "messages[0]"),
        ({"model": "demo", "messages": [{"role": "x", "content": ""}]}, 400, "one of", "messages[0].role"),
        ({"model": "demo", "messages": [{"role": "user"}]}, 400, "expected text", "messages[0].content"),
        (CHAT | {"stream": "yes"}, 400, "stream: expected bool, got str", "stream"),
        (CHAT | {"max_tokens": 0}, 400, "at least 1, got 0", "max_tokens"),
        (CHAT | {"max_tokens": True}, 400, "expected int, got bool", "max_tokens"),
        (CHAT | {"n": 2}, 400, "only one choice", "n"),
        (b"x" * (2 << 20), 413, "larger than", None),
    ],
)
def test_bad_requests(server: str, body: Any, status: int, said: str, param: str | None) -> None:
    """A request that can't be served is refused with OpenAI's error object, naming the field."""
    response = ask(server, body)
    error = response.json()["error"]
    assert (response.status, error["param"], error["type"]) == (status, param, "invalid_request_error")
    assert said in error["message"]


def test_text_parts(server: str) -> None:
    """A message's content may be a list of text parts."""
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    answer = ask(server, {"model": "demo", "messages": [{"role": "user", "content": parts}]}).json()
    assert answer["usage"]["prompt_tokens"] == 2


def test_unknown_paths(server: str) -> None:
    """A path that doesn't exist is 404, a method that isn't for it 405."""
    assert HTTP.request("GET", server + "/v2").status == 404
    assert HTTP.request("GET", server + "/v1/chat/completions").status == 405
    assert HTTP.request("POST", server + "/health").status == 405


def test_loading() -> None:
    """Until the model is loaded, health and completions answer 503."""
    with chat_server(LOAD_S="100000") as (url, _):
        assert HTTP.request("GET", url + "/health").status == 503
        response = ask(url, CHAT)
        assert (response.status, response.json()["error"]["code"]) == (503, "model_loading")


def test_counters() -> None:
    """The metrics count requests, refusals and tokens, and a client that leaves."""
    with chat_server(TOKENS="100000", TOKEN_S="0.001") as (url, _):

        def metrics() -> dict[str, str]:
            text = HTTP.request("GET", url + "/metrics").data.decode()
            return dict(line.removeprefix("chat_server_").split() for line in text.splitlines())

        wait_until(lambda: healthy(url), "the server is loaded")
        ask(url, CHAT | {"max_tokens": 7})
        ask(url, b"{")
        leaving = HTTP.request("POST", url + "/v1/chat/completions", json=CHAT, preload_content=False)
        leaving.close()
        wait_until(lambda: metrics().get("requests_abandoned_total") == "1", "the client's leaving is seen")
        seen = metrics()
        assert (seen["requests_total"], seen["requests_finished_total"]) == ("3", "1")
        assert seen["requests_refused_total"] == "1"


def test_sigterm() -> None:
    """A server that is asked to stop finishes its streams first, and ends well."""
    with chat_server(TOKENS="300", TOKEN_S="0.001") as (url, process):
        wait_until(lambda: healthy(url), "the server is loaded")
        response = HTTP.request("POST", url + "/v1/chat/completions", json=CHAT, preload_content=False)
        process.send_signal(signal.SIGTERM)
        assert response.read().endswith(b"data: [DONE]\n\n")
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("PORT", "http", "--port: expected a port from 1 to 65535, got 'http'"),
        ("PORT", "65536", "--port: expected a port from 1 to 65535, got '65536'"),
        ("LOAD_S", "-1", "--load-s: expected seconds, 0 or more, got '-1'"),
        ("TOKEN_S", "nan", "--token-s: expected seconds, 0 or more, got 'nan'"),
        ("TOKENS", "0", "--tokens: expected a whole number, at least 1, got '0'"),
    ],
)
def test_bad_settings(capsys: pytest.CaptureFixture[str], variable: str, value: str, said: str) -> None:
    """A setting that makes no sense ends the server with 2 and a line that says what was expected."""
    with pytest.raises(SystemExit) as ended:
        parse_settings([], {variable: value})
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_arguments_win() -> None:
    """The command line wins over the environment."""
    assert parse_settings(["--port", "1"], {"PORT": "2", "MODEL_NAME": "m"}).port == 1


def test_port_in_use() -> None:
    """A port in use is said in one line."""
    with chat_server() as (url, _):
        address = url.removeprefix("http://").removesuffix(f":{PORT}")
        second = subprocess.run(
            [*COMMAND, "--host", address, "--port", str(PORT)], capture_output=True, text=True, check=False
        )
        assert second.returncode == 1
        assert second.stderr.startswith(f"chat_server: can't listen on {address}:{PORT}:")
        assert second.stderr.count("\n") == 1
