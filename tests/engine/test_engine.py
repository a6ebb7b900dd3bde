"""What a real engine does where SpotRelay relies on it: llama.cpp, asked by OpenAI's own client.

A stand-in does what we believe of engines. Here it is seen.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from http.client import HTTPConnection
from pathlib import Path

import openai
import pytest
import xllamacpp  # type: ignore[import-untyped]  # it comes without types
from openai.types.chat import ChatCompletionUserMessageParam

from lab.engine import model
from lambdas import probe
from spotrelay.file.service import load
from tests.local_data_plane.support import free_address

PORT = 8173

QUICK = Path(__file__).parents[2] / "services" / "llama3-quick.yaml"

PATIENCE_S = 60.0

HELLO: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "hello"}]

LONG = 1500
"""Tokens: half a second of one processor's."""

FOR_EVER = {"ignore_eos": True}


class Engine:
    """A server of its own; `client` never repeats a request."""

    def __init__(self, process: subprocess.Popen[bytes], address: str) -> None:
        self.process, self.address = process, address
        self.client = openai.OpenAI(
            base_url=f"http://{address}:{PORT}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S
        )

    def get(self, path: str) -> tuple[int, str, dict[str, str]]:
        """Status, body, headers."""
        asking = HTTPConnection(self.address, PORT, timeout=PATIENCE_S)
        asking.request("GET", path)
        answer = asking.getresponse()
        return answer.status, answer.read().decode(), {k.lower(): v for k, v in answer.getheaders()}

    def say(self, tokens: int) -> str | None:
        """One answer, whole."""
        said = self.client.chat.completions.create(
            model="tiny", messages=HELLO, max_tokens=tokens, extra_body=FOR_EVER
        )
        assert said.usage
        assert said.usage.completion_tokens == tokens
        return said.choices[0].message.content

    def stream(self, tokens: int) -> Iterator[str]:
        """One answer, piece by piece."""
        for piece in self.client.chat.completions.create(
            model="tiny", messages=HELLO, max_tokens=tokens, extra_body=FOR_EVER, stream=True
        ):
            yield piece.choices[0].delta.content or ""

    def count(self, *metrics: str) -> float:
        """What SpotRelay's prober reads of its page."""
        _, page, _ = self.get("/metrics")
        return probe.ongoing_in(f"HTTP/1.1 200 OK\r\n\r\n{page}".encode(), metrics, closed=True, most=1e9)


Start = Callable[..., Engine]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's file."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    model.write(path)
    return path


@pytest.fixture
def start(weights: Path, tmp_path: Path) -> Iterator[Start]:
    """Start one, until it answers its health check."""
    started: list[subprocess.Popen[bytes]] = []

    def make(slots: int = 2) -> Engine:
        address = free_address()
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "lab.engine.server", str(weights)],
                env={**os.environ, "HOST": address, "PORT": str(PORT), "SLOTS": str(slots)},
                stdout=log,
                stderr=log,
            )
        started.append(process)
        engine = Engine(process, address)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                status, said, _ = engine.get("/health")
            except OSError:
                status, said = 0, ""
            # While it loads its weights: 503.
            assert status in (0, 503, 200), said
            if status == 200:
                return engine
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.05)

    yield make
    for process in started:
        process.kill()
        process.wait()


def test_it_answers_whole_and_streamed(start: Start) -> None:
    """And says what its model is called."""
    engine = start()
    assert engine.say(50)
    assert "".join(engine.stream(50))
    assert [one.id for one in engine.client.models.list()] == ["tiny"]


@pytest.mark.usefixtures("on_loopback")
def test_the_readiness_probe_of_an_example_is_answered(start: Start) -> None:
    """By the function that asks replicas: one token of chat."""
    engine = start()
    url = f"http://{engine.address}:{PORT}/v1/chat/completions"
    data = {"model": "tiny", "messages": HELLO, "max_tokens": 1}
    said = probe.handler({"urls": {"i-1": url}, "post_data": data, "timeout_s": PATIENCE_S}, None)
    assert said == {"answering": ["i-1"], "refusing": []}
    wrong = probe.handler({"urls": {"i-1": f"{url}x"}, "post_data": data, "timeout_s": PATIENCE_S}, None)
    assert wrong == {"answering": [], "refusing": ["i-1"], "status": {"i-1": "404 Not Found"}}


def test_a_prompt_that_is_too_long_is_the_clients_fault(start: Start) -> None:
    """400, which no client repeats and no replica is blamed for; the next one is answered."""
    engine = start()
    with pytest.raises(openai.BadRequestError, match="exceeds the available context size"):
        engine.client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "hello " * 3000}], max_tokens=1
        )
    assert engine.say(5)


def test_what_finds_all_slots_taken_waits(start: Start) -> None:
    """None is refused: so its load shows in its metrics, and not in errors."""
    engine = start(slots=1)
    with ThreadPoolExecutor(6) as clients:
        answers = [clients.submit(engine.say, 300) for _ in range(6)]
        assert all(answer.result(PATIENCE_S) for answer in answers)
    assert engine.count("llamacpp:tokens_predicted_total") == 6 * 300
    assert engine.count("llamacpp:requests_processing", "llamacpp:requests_deferred") == 0


def test_its_metrics_tell_what_it_has_to_do(start: Start) -> None:
    """Those in progress and waiting, and that work goes on, by the names in services/llama3-quick.yaml."""
    busy = load(QUICK).busy
    assert busy
    engine = start(slots=1)
    with ThreadPoolExecutor(4) as clients:
        answers = [clients.submit(engine.say, LONG) for _ in range(4)]
        ongoing, finished = [], set()
        while not all(answer.done() for answer in answers):
            ongoing.append(engine.count(*busy.ongoing))
            finished.add(engine.count(*busy.finished))
        assert 1 < max(ongoing) <= 4
        assert len(finished) > len(answers) + 1, "it rises while an answer is under way, not only after it"


def test_every_option_of_the_quick_example_is_one_of_its_parsers() -> None:
    """llama-server's parser is part of the library, with the names of its options as strings."""
    (library,) = Path(xllamacpp.__file__).parent.glob("*.so")
    known = library.read_bytes()
    options = re.findall(r"--[\w-]+", re.sub(r"(?m)^#.*", "", load(QUICK).run))
    assert len(options) == 11
    assert [one for one in options if f"\0{one}\0".encode() not in known] == []


def test_a_client_that_goes_away_frees_its_slot(start: Start) -> None:
    """The next one need not wait for an answer that nobody reads."""
    engine = start(slots=1)
    stream = engine.client.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=LONG, extra_body=FOR_EVER, stream=True
    )
    next(iter(stream))
    stream.close()
    assert engine.say(5)
    assert engine.count("llamacpp:tokens_predicted_total") < LONG


def test_an_idle_connection_is_closed_after_five_seconds(start: Start) -> None:
    """Sooner than any load balancer closes it, and no option changes that: now and then a client gets 502."""
    engine = start()
    _, _, headers = engine.get("/health")
    assert headers["keep-alive"].startswith("timeout=5")


@pytest.mark.parametrize("stream", [False, True])
def test_a_connection_is_closed_after_a_stream_and_kept_after_a_whole_answer(
    start: Start, stream: bool
) -> None:
    """Both say that it is kept, so a load balancer uses it again: now and then a client gets 502."""
    engine = start()
    asking = HTTPConnection(engine.address, PORT, timeout=PATIENCE_S)
    body = json.dumps({"model": "tiny", "messages": HELLO, "max_tokens": 1, "stream": stream})
    asking.request("POST", "/v1/chat/completions", body)
    answer = asking.getresponse()
    assert (answer.status, answer.getheader("keep-alive")) == (200, "timeout=5, max=100")
    answer.read()
    asking.sock.settimeout(2)
    with nullcontext() if stream else pytest.raises(TimeoutError):
        assert asking.sock.recv(1) == b""


def test_sigterm_cuts_its_answers(start: Start) -> None:
    """So a replica has to be out of the rotation, and its answers finished, before it is told to stop."""
    engine = start()
    pieces = engine.stream(LONG)
    next(pieces)
    engine.process.send_signal(signal.SIGTERM)
    with pytest.raises(openai.APIConnectionError):
        list(pieces)
