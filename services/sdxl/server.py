"""Stable Diffusion XL over HTTP: POST /v1/images/generations draws, GET /health tells whether it can.

GET /metrics tells how many images it has drawn, and how many requests it has: services/sdxl.yaml, `busy`.
"""

from __future__ import annotations

import base64
import io
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from diffusers import StableDiffusionXLPipeline

STEPS, MOST_STEPS = 30, 100

MOST_WAITING = 4
"""Behind the image that is drawn. An L4 takes some nine seconds for one: whoever comes last has it within the
minute that the file's drain_seconds gives. A client that is turned away may find another replica."""

COUNTING = threading.Lock()

DRAIN_S = 60
"""What is in the line when the instance is stopped has so long: drain_seconds."""


class FullError(Exception):
    """There is no place in the line."""


class GoneError(Exception):
    """The client has hung up before its turn came."""


class Line:
    """One image at a time, as a GPU that draws two takes twice as long for both. Thread-safe.

    A request of one step, as the readiness probe sends it, comes next: it takes no time, and a replica that
    is late for it is taken for one that hangs. Only one at a time may do so.
    """

    def __init__(self, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        self._changed = threading.Condition()
        self._waiting: list[object] = []
        self._short: object | None = None
        self._is_drawing = False
        self.drawn = 0

    def draw(self, pipeline: Any, client: socket.socket, prompt: str, steps: int) -> Any:
        """The image, when its turn has come. Raises FullError, GoneError and what drawing raises."""
        place = object()
        with self._changed:
            if steps == 1 and self._short is None:
                self._short = place
                self._waiting.insert(0, place)
            elif self._is_drawing and len(self._waiting) >= self._most_waiting:
                raise FullError
            else:
                self._waiting.append(place)
            self._changed.wait_for(lambda: not self._is_drawing and self._waiting[0] is place)
            self._waiting.remove(place)
            if self._short is place:
                self._short = None
            self._is_drawing = True
        try:
            if is_gone(client):
                raise GoneError
            image = pipeline(prompt=prompt, num_inference_steps=steps).images[0]
            self.drawn += 1
            return image
        finally:
            with self._changed:
                self._is_drawing = False
                self._changed.notify_all()


def is_gone(client: socket.socket) -> bool:
    """Whether the other side has closed the connection."""
    try:
        readable = select.select([client], [], [], 0)[0]
        return bool(readable) and client.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True


def load() -> Any:
    """The model, on the GPU."""
    pipeline = StableDiffusionXLPipeline.from_pretrained(
        os.environ["MODEL_NAME"], torch_dtype=torch.float16, variant="fp16", use_safetensors=True
    )
    return pipeline.to("cuda")


def is_broken() -> bool:
    """Whether the GPU does nothing any more: after most of CUDA's errors only another process can use it."""
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        sys.stderr.write(f"the GPU is broken: {error}\n")
        return True
    return False


class Server(ThreadingHTTPServer):
    """Listens for a whole fleet's clients, and ends without cutting an answer."""

    daemon_threads = True
    request_queue_size = 128
    """Connections that nobody has accepted yet; Python's own five are refused in a burst."""

    def __init__(self, address: tuple[str, int], pipeline: Any) -> None:
        super().__init__(address, Handler)
        self.pipeline = pipeline
        self.line = Line(MOST_WAITING)
        self.answering = 0
        self.is_ending = False
        self.is_broken = False

    def end(self) -> None:
        """Accept nothing more. Returns at once; `serve_forever` returns when what was asked is answered."""
        if not self.is_ending:
            self.is_ending = True
            threading.Thread(target=self.shutdown, daemon=True).start()

    def serve(self) -> int:
        """Until somebody ends it; the status to exit with."""
        self.serve_forever(poll_interval=0.1)
        self.server_close()
        end_s = time.monotonic() + DRAIN_S
        while self.answering and time.monotonic() < end_s:
            time.sleep(0.05)
        return int(self.is_broken)


class Handler(BaseHTTPRequestHandler):
    """Answers as OpenAI's image API does: `{"data": [{"b64_json": …}]}`."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """`/health` and `/metrics`."""
        if self.path == "/metrics":
            text = f"sdxl_images_total {self.server.line.drawn}\nsdxl_requests {self.server.answering}\n"
            self._send(200, "text/plain; version=0.0.4", text.encode())
        elif self.path == "/health":
            self._answer(503 if self.server.is_broken else 200, {})
        else:
            self._answer(404, {})

    def do_POST(self) -> None:
        """`prompt`, and `steps` if another number than 30."""
        try:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt, steps = str(asked["prompt"]), int(asked.get("steps", STEPS))
        except (KeyError, TypeError, ValueError) as error:
            self._answer(400, {"error": f"expected JSON with a prompt: {error!r}"})
            return
        if not 1 <= steps <= MOST_STEPS:
            self._answer(400, {"error": f"expected 1 to {MOST_STEPS} steps, got {steps}"})
            return
        with COUNTING:
            self.server.answering += 1
        try:
            self._draw(prompt, steps)
        finally:
            with COUNTING:
                self.server.answering -= 1

    def _draw(self, prompt: str, steps: int) -> None:
        server = self.server
        if server.is_ending:
            self._answer(503, {"error": "this replica ends"}, {"Connection": "close"})
            return
        png = io.BytesIO()
        try:
            image = server.line.draw(server.pipeline, self.connection, prompt, steps)
            image.save(png, format="PNG")
        except FullError:
            self._answer(503, {"error": f"{MOST_WAITING} images wait already"}, {"Retry-After": "10"})
        except GoneError:
            self.close_connection = True
        except Exception as error:  # noqa: BLE001 - whatever a model raises is this request's
            sys.stderr.write(f"can't draw: {error!r}\n")
            if is_broken():
                # systemd starts it again, with a GPU that works or words that say why not.
                server.is_broken = True
                server.end()
            self._answer(500, {"error": f"can't draw: {error}"})
        else:
            self._answer(200, {"data": [{"b64_json": base64.b64encode(png.getvalue()).decode()}]})

    def _answer(self, status: int, content: dict[str, Any], more: dict[str, str] | None = None) -> None:
        self._send(status, "application/json", json.dumps(content).encode(), more)

    def _send(self, status: int, kind: str, body: bytes, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    with Server((os.environ["HOST"], int(os.environ["PORT"])), load()) as listening:
        signal.signal(signal.SIGTERM, lambda *_: listening.end())
        sys.exit(listening.serve())
