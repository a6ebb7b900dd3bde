"""A web server over TLS, as far as `web.py` asks it: files in memory, ranges, redirects, and trouble."""

from __future__ import annotations

import hashlib
import http.server
import re
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.certificates import SelfSigned

Trouble = Callable[[int], str]
"""By a request's number among those that bring content: a status, `cut` or `stall`; empty: it is answered."""


def no_trouble(_: int) -> str:
    """All is answered."""
    return ""


class Web(http.server.ThreadingHTTPServer):
    """Serves files by their paths; a test may change them meanwhile."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, directory: Path, files: dict[str, bytes], host: str = "localhost") -> None:
        """`directory`: for the certificate; `host`: a name or an address of this machine."""
        super().__init__((host, 0), _Answer)
        self.files = files
        self.redirects: dict[str, str] = {}
        self.signed: dict[str, str] = {}
        """Paths that lead to an address of a content network, which is another each time."""
        self.signatures: list[str] = []
        """Those that are good."""
        self.signs = 0
        self.has_ranges = True
        self.tells_length = True
        self.etag: Callable[[bytes], str] = etag
        """What it says that a file is, by its content; empty: nothing."""
        self.trouble: Trouble = no_trouble
        self.looks = 0
        """Requests for one byte."""
        self.asked: list[str] = []
        """Ranges, in the order of the requests; empty: all of a file."""
        self.agents: set[str] = set()
        self.lock = threading.Lock()
        certificate = SelfSigned.of(host)
        self.authority = directory / "authority.pem"
        self.authority.write_bytes(certificate.certificate)
        pair = directory / "pair.pem"
        pair.write_bytes(certificate.certificate + certificate.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://{host}:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: clients break off here."""

    def close(self) -> None:
        """Answer nobody any more."""
        self.shutdown()
        self.server_close()


def etag(content: bytes) -> str:
    """As most servers have it."""
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


class _Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Web

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self.server.agents.add(self.headers["user-agent"] or "")
        path = unquote(urlsplit(self.path).path)
        if to := self.server.redirects.get(path):
            self.say(302, {"Location": to})
        elif path in self.server.signed:
            with self.server.lock:
                self.server.signs += 1
                name = f"s{self.server.signs}"
                self.server.signatures.append(name)
            self.say(302, {"Location": f"/cdn{self.server.signed[path]}?signature={name}"})
        elif path.startswith("/cdn/"):
            is_good = urlsplit(self.path).query.removeprefix("signature=") in self.server.signatures
            self.content(path.removeprefix("/cdn")) if is_good else self.say(403)
        else:
            self.content(path)

    def content(self, path: str) -> None:
        asked, content = self.headers["range"], self.server.files.get(path)
        if content is None:
            self.say(404)
            return
        what = ""
        with self.server.lock:
            if asked == "bytes=0-0":
                self.server.looks += 1
            else:
                self.server.asked.append(asked or "")
                what = self.server.trouble(len(self.server.asked))
        content = self.server.files[path]
        if what.isdigit():
            self.say(int(what))
            return
        its = {"ETag": told} if (told := self.server.etag(content)) else {}
        if asked and self.server.has_ranges:
            first, last = map(int, re.findall(r"\d+", asked))
            if first >= len(content):
                self.say(416)
                return
            part = content[first : last + 1]
            said = f"bytes {first}-{first + len(part) - 1}/{len(content)}"
            self.part(206, part, what, {**its, "Content-Range": said})
        else:
            self.part(200, content, what, its)

    def part(self, status: int, part: bytes, what: str, headers: dict[str, str]) -> None:
        if self.server.tells_length:
            headers = {**headers, "Content-Length": str(len(part))}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if what == "stall":
            time.sleep(1.5)
        self.close_connection = bool(what) or not self.server.tells_length
        self.wfile.write(part[: len(part) // 2] if what else part)

    def say(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()
