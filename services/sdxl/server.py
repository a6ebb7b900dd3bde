"""Stable Diffusion XL over HTTP: POST /v1/images/generations draws, GET /health tells that it is there.

GET /metrics tells how many images it has drawn, and how many requests it has: services/sdxl.yaml, `busy`.
"""

from __future__ import annotations

import base64
import io
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from diffusers import StableDiffusionXLPipeline

STEPS, MOST_STEPS = 30, 100

TURN = threading.Lock()
"""One image at a time: a GPU that draws two takes twice as long for both."""

COUNTING = threading.Lock()
COUNTS = {"sdxl_images_total": 0, "sdxl_requests": 0}


def count(name: str, more: int) -> None:
    """Add to what /metrics tells."""
    with COUNTING:
        COUNTS[name] += more


def load() -> Any:
    """The model, on the GPU."""
    pipeline = StableDiffusionXLPipeline.from_pretrained(
        os.environ["MODEL_NAME"], torch_dtype=torch.float16, variant="fp16", use_safetensors=True
    )
    return pipeline.to("cuda")


class Handler(BaseHTTPRequestHandler):
    """Answers as OpenAI's image API does: `{"data": [{"b64_json": …}]}`."""

    protocol_version = "HTTP/1.1"
    pipeline: Any

    def do_GET(self) -> None:
        """`/health` and `/metrics`."""
        if self.path == "/metrics":
            self._send(200, "text/plain; version=0.0.4", "".join(f"{n} {c}\n" for n, c in COUNTS.items()))
        else:
            self._answer(200 if self.path == "/health" else 404, {})

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
        count("sdxl_requests", 1)
        try:
            with TURN:
                image = self.pipeline(prompt=prompt, num_inference_steps=steps).images[0]
            count("sdxl_images_total", 1)
        finally:
            count("sdxl_requests", -1)
        png = io.BytesIO()
        image.save(png, format="PNG")
        self._answer(200, {"data": [{"b64_json": base64.b64encode(png.getvalue()).decode()}]})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(content))

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    Handler.pipeline = load()
    address = os.environ["HOST"], int(os.environ["PORT"])
    ThreadingHTTPServer(address, Handler).serve_forever()
