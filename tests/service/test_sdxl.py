"""services/sdxl.yaml, and its server with stand-ins for torch and the model."""

from __future__ import annotations

import base64
import json
import runpy
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lambdas import probe
from spotrelay.file.service import load

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


class Gpu:
    """Draws when it is let, one image at a time, and may break."""

    def __init__(self) -> None:
        self.drawn: list[str] = []
        self.goes = threading.Event()
        self.goes.set()
        self.is_broken = False
        self.begun = threading.Semaphore(0)

    def __call__(self, prompt: str, num_inference_steps: int) -> SimpleNamespace:
        """As the pipeline is called."""
        self.begun.release()
        assert self.goes.wait(30)
        if self.is_broken or prompt == "a mistake":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.drawn.append(prompt)
        return draw(prompt, num_inference_steps)

    def synchronize(self) -> None:
        """As `torch.cuda` has it."""
        if self.is_broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")


@dataclass
class Replica:
    """The server, and what it draws with."""

    listening: Any
    gpu: Gpu
    thread: threading.Thread
    statuses: list[int]
    module: dict[str, Any]

    def connect(self) -> HTTPConnection:
        """A client."""
        return HTTPConnection("127.0.0.1", self.listening.server_address[1], timeout=30)

    def ask(self, prompt: str, steps: int = 30) -> tuple[threading.Thread, list[tuple[int, dict[str, str]]]]:
        """In the background: the thread, and where status and headers will be."""
        answers: list[tuple[int, dict[str, str]]] = []

        def run() -> None:
            client = self.connect()
            client.request("POST", "/v1/images/generations", json.dumps({"prompt": prompt, "steps": steps}))
            answer = client.getresponse()
            answer.read()
            answers.append((answer.status, dict(answer.headers)))
            client.close()

        before = self.listening.answering
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        for _ in range(600):
            if answers or self.listening.answering > before:
                break
            time.sleep(0.02)
        return thread, answers


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Iterator[Replica]:
    """One that serves."""
    gpu = Gpu()
    torch, diffusers = ModuleType("torch"), ModuleType("diffusers")
    torch.cuda = gpu  # type: ignore[attr-defined]  # as much of it as the server calls
    diffusers.StableDiffusionXLPipeline = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "diffusers", diffusers)
    module = runpy.run_path(str(ROOT / "services" / "sdxl" / "server.py"))
    monkeypatch.setattr(module["Handler"], "log_message", lambda *_: None)
    listening = module["Server"](("127.0.0.1", 0), gpu)
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(listening.serve()), daemon=True)
    thread.start()
    yield Replica(listening, gpu, thread, statuses, module)
    gpu.goes.set()
    listening.end()
    thread.join(30)


@pytest.fixture
def server(replica: Replica) -> Iterator[HTTPConnection]:
    """A connection to the server."""
    connection = replica.connect()
    yield connection
    connection.close()


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


def test_a_line_that_is_full_turns_clients_away(replica: Replica) -> None:
    """One is drawn and four wait; the next has its answer at once, and another replica may have a place."""
    replica.gpu.goes.clear()
    asked = [replica.ask(f"image {number}") for number in range(5)]
    thread, refused = replica.ask("one too many")
    thread.join(30)
    assert [(status, headers["Retry-After"]) for status, headers in refused] == [(503, "10")]
    replica.gpu.goes.set()
    for thread, _ in asked:
        thread.join(30)
    assert [answers[0][0] for _, answers in asked] == [200] * 5
    assert sorted(replica.gpu.drawn) == [f"image {number}" for number in range(5)]


def test_the_probe_comes_next(replica: Replica) -> None:
    """It isn't late because clients wait: it has a place even in a full line, and goes ahead of them.

    Only one at a time, or whoever asks for one step would never let anybody else draw.
    """
    replica.gpu.goes.clear()
    asked = [replica.ask(f"image {number}") for number in range(5)]
    asked.append(replica.ask("a lighthouse", steps=1))
    thread, refused = replica.ask("another", steps=1)
    thread.join(30)
    assert [status for status, _ in refused] == [503]
    replica.gpu.goes.set()
    for thread, _ in asked:
        thread.join(30)
    assert replica.gpu.drawn[:2] == ["image 0", "a lighthouse"]
    assert [answers[0][0] for _, answers in asked] == [200] * 6


def test_nothing_is_drawn_for_a_client_that_is_gone(replica: Replica) -> None:
    """It hung up while it waited: its place is the next one's."""
    replica.gpu.goes.clear()
    first = replica.ask("first")
    gone = replica.connect()
    gone.request("POST", "/v1/images/generations", '{"prompt": "nobody waits"}')
    for _ in range(600):
        if replica.listening.answering == 2:
            break
        time.sleep(0.02)
    last = replica.ask("last")
    gone.close()
    replica.gpu.goes.set()
    for thread, _ in (first, last):
        thread.join(30)
    assert replica.gpu.drawn == ["first", "last"]


def test_it_ends_when_what_was_asked_is_answered(replica: Replica) -> None:
    """SIGTERM, which calls `end`: what is drawn and what waits is answered, and nothing new is accepted."""
    replica.gpu.goes.clear()
    waiting = replica.connect()
    waiting.request("GET", "/health")
    assert waiting.getresponse().read() == b"{}"
    asked = [replica.ask(f"image {number}") for number in range(3)]
    replica.listening.end()
    waiting.request("POST", "/v1/images/generations", '{"prompt": "too late"}')
    answer = waiting.getresponse()
    assert (answer.status, answer.headers["Connection"]) == (503, "close")
    assert not replica.statuses
    replica.gpu.goes.set()
    replica.thread.join(30)
    for thread, _ in asked:
        thread.join(30)
    assert [answers[0][0] for _, answers in asked] == [200] * 3
    assert replica.statuses == [0]
    with pytest.raises(OSError, match="refused"):
        replica.connect().connect()


def test_a_request_that_fails_is_one_request(replica: Replica, server: HTTPConnection) -> None:
    """The GPU is asked whether it lives, and then goes on."""
    status, answer = ask(server, '{"prompt": "a mistake"}')
    assert (status, answer["error"][:10]) == (500, "can't draw")
    assert ask(server, '{"prompt": "a lighthouse"}')[0] == 200
    server.request("GET", "/health")
    assert server.getresponse().status == 200


def test_a_gpu_that_is_broken_serves_nobody(replica: Replica, server: HTTPConnection) -> None:
    """No health check passes, and the server ends with an error, so that it is started again."""
    other = replica.connect()
    other.request("GET", "/health")
    assert other.getresponse().read() == b"{}"
    replica.gpu.is_broken = True
    assert ask(server, '{"prompt": "a lighthouse"}')[0] == 500
    other.request("GET", "/health")
    assert other.getresponse().status == 503
    replica.thread.join(30)
    assert replica.statuses == [1]


def test_its_drain_is_the_services(replica: Replica) -> None:
    """The instance gives the server as long as it takes, at the most."""
    assert load(ROOT / "services" / "sdxl.yaml").drain_s == replica.module["DRAIN_S"]
