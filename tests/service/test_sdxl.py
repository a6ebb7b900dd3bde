"""services/sdxl.yaml, and its server with stand-ins for torch and the model."""

from __future__ import annotations

import base64
import json
import runpy
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lambdas import probe
from spotrelay.service import load

ROOT = Path(__file__).parents[2]


class Image:
    """What the model draws."""

    def __init__(self, words: str) -> None:
        self.words = words

    def save(self, file: Any, format: str) -> None:  # noqa: A002 - Pillow's name
        """Its bytes tell how it was asked for."""
        file.write(f"{format} {self.words}".encode())


def draw(prompt: str, num_inference_steps: int) -> SimpleNamespace:
    """The model's answer."""
    return SimpleNamespace(images=[Image(f"{prompt} in {num_inference_steps}")])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HTTPConnection]:
    """A connection to the server."""
    for name in ("torch", "diffusers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["diffusers"], "StableDiffusionXLPipeline", None, raising=False)
    handler = runpy.run_path(str(ROOT / "services" / "sdxl" / "server.py"))["Handler"]
    handler.pipeline = staticmethod(draw)
    monkeypatch.setattr(handler, "log_message", lambda *_: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
        connection = HTTPConnection("127.0.0.1", listening.server_address[1], timeout=30)
        yield connection
        connection.close()
        listening.shutdown()


def ask(server: HTTPConnection, body: str) -> tuple[int, dict[str, Any]]:
    """POST it; status and JSON."""
    server.request("POST", "/v1/images/generations", body)
    answer = server.getresponse()
    return answer.status, json.loads(answer.read())


def test_the_fastest_gpu_comes_first() -> None:
    """The article's order, from 2xlarge up, on at least ten types; nothing in the file is warned of."""
    sdxl = load(ROOT / "services" / "sdxl.yaml")
    assert list(dict.fromkeys(t.accelerator for t in sdxl.instance_types)) == ["L40S", "A10G", "L4"]
    assert sdxl.ordered
    assert len(sdxl.instance_types) >= 10
    assert min(t.vcpus for t in sdxl.instance_types) == 8
    assert sdxl.warnings == sdxl.notices == ()


def test_the_probe_of_the_file_draws_an_image(server: HTTPConnection) -> None:
    """It is one that the server answers with 200."""
    probe = load(ROOT / "services" / "sdxl.yaml").readiness_probe
    assert probe
    status, answer = ask(server, json.dumps(probe.post_data))
    assert (status, probe.path) == (200, "/v1/images/generations")
    assert base64.b64decode(answer["data"][0]["b64_json"]) == b"PNG a lighthouse in 1"


@pytest.mark.parametrize(
    "body", ["", "{", "[]", "{}", '{"prompt": "x", "steps": "y"}', '{"prompt": "x", "steps": 0}']
)
def test_what_is_no_request_gets_an_answer(server: HTTPConnection, body: str) -> None:
    """400, with what was expected; the connection stays."""
    status, answer = ask(server, body)
    assert status == 400
    assert answer["error"].startswith("expected ")
    server.request("GET", "/health")
    assert server.getresponse().status == 200


def test_it_tells_how_much_it_has_drawn(server: HTTPConnection) -> None:
    """By the names that the service file gives: a drawn image counts, and what failed doesn't."""
    busy = load(ROOT / "services" / "sdxl.yaml").busy
    assert busy is not None
    ask(server, '{"prompt": "x", "steps": 1}')
    ask(server, "{}")
    server.request("GET", "/metrics")
    answer = server.getresponse()
    page = b"HTTP/1.1 200 OK\r\n\r\n" + answer.read()
    assert probe.ongoing_in(page, busy.finished, closed=True) == 1
    assert probe.ongoing_in(page, busy.ongoing, closed=True) == 0
