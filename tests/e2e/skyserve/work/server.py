"""A stand-in for the server of a user's work directory, as small as one can be.

GET is fine: /health for everybody, the rest with the API key if there is one. POST wants this server's own
model; where GATE names a file, it answers 503 until that file has been there once, as a server does whose
model still loads.
"""

from __future__ import annotations

import argparse
import json
import os
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

options = argparse.ArgumentParser()
options.add_argument("--port", type=int, required=True)
options.add_argument("--api-key")
arguments = options.parse_args()

HOST = os.environ["HOST"]
GATE = Path(os.environ["GATE"]) if "GATE" in os.environ else None
GREETING = Path("greeting.txt")


class Handler(BaseHTTPRequestHandler):
    """Answers with who says it, and where that is."""

    is_open = GATE is None

    def do_GET(self) -> None:
        """Whoever has the key gets the greeting of the directory that the server runs in."""
        if self.path == "/health":
            self._answer(HTTPStatus.OK, "healthy")
        elif arguments.api_key and self.headers["Authorization"] != f"Bearer {arguments.api_key}":
            self._answer(HTTPStatus.UNAUTHORIZED, "no key")
        elif self.path == "/":
            self._answer(HTTPStatus.NOT_FOUND, "nothing here")
        else:
            self._answer(HTTPStatus.OK, GREETING.read_text(encoding="utf-8") if GREETING.exists() else "")

    def do_POST(self) -> None:
        """What a model server does: a real request."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if GATE is not None and not Handler.is_open:
            Handler.is_open = GATE.exists()
        if not Handler.is_open:
            with Path(f"{GATE}.refused").open("a", encoding="utf-8") as refused:
                refused.write(f"{HOST}\n")
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "still loading")
        elif asked.get("model") != os.environ.get("MODEL"):
            self._answer(HTTPStatus.NOT_FOUND, "no such model")
        else:
            self._answer(HTTPStatus.OK, f"completed {asked['prompt']}")

    def _answer(self, status: HTTPStatus, text: str) -> None:
        body = f"{HOST}: {text}".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer((HOST, arguments.port), Handler).serve_forever()
