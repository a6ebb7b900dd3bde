"""A server that answers as S3 and as the instance metadata service do, as far as `fetch.py` asks them."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Callable
from xml.sax.saxutils import escape

BUCKET = "models"

METADATA = "/latest/meta-data/"

Trouble = Callable[[int], str]
"""By a request's number among those for objects: a status, `cut` or `stall`; empty: it is answered."""

CODES = {403: "AccessDenied", 404: "NoSuchKey", 412: "PreconditionFailed", 503: "SlowDown"}


def etag(content: bytes) -> str:
    """As S3 makes it of what was put at once."""
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def no_trouble(_: int) -> str:
    """All is answered."""
    return ""


class S3(http.server.ThreadingHTTPServer):
    """A bucket in memory, which a test may change meanwhile, and the metadata of an instance with a role."""

    daemon_threads = True

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.objects = objects
        self.trouble: Trouble = no_trouble
        self.page = 1000
        """Objects that one answer to a listing names."""
        self.asked: list[str] = []
        """Keys of objects, in the order of the requests."""
        self.listed = 0
        self.roles = 0
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Answer nobody any more."""
        self.shutdown()
        self.server_close()


class _Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3

    def log_message(self, *_: object) -> None: ...

    def do_PUT(self) -> None:
        length = int(self.headers["Content-Length"] or 0)
        body = self.rfile.read(length)
        if self.path == "/latest/api/token":
            self.say(200, b"token")
        elif self.headers["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
            self.say(400)
        else:
            key = urllib.parse.unquote(self.path).removeprefix(f"/{BUCKET}/")
            self.server.objects[key] = body
            self.say(200)

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        key = urllib.parse.unquote(url.path).removeprefix(f"/{BUCKET}/")
        if self.path.startswith(METADATA):
            self.metadata(self.path.removeprefix(METADATA))
        elif "authorization" not in self.headers:
            self.say(403)
        elif key:
            self.object(key)
        else:
            self.listing(dict(urllib.parse.parse_qsl(url.query)))

    def metadata(self, path: str) -> None:
        keys = {"AccessKeyId": "AKIA", "SecretAccessKey": "se/cret", "Token": "to+ken="}
        told = {
            "ami-id": "ami-1",
            "instance-type": "g6.2xlarge",
            "placement/region": "eu-west-1",
            "iam/security-credentials/": "role",
            "iam/security-credentials/role": json.dumps(keys),
        }
        self.server.roles += path == "iam/security-credentials/"
        if self.headers["X-aws-ec2-metadata-token"] != "token":
            self.say(401)
        elif path in told:
            self.say(200, told[path].encode())
        else:
            self.say(404)

    def listing(self, query: dict[str, str]) -> None:
        self.server.listed += 1
        objects, page = self.server.objects, self.server.page
        keys = sorted(key for key in objects if key.startswith(query["prefix"]))
        start = int(query.get("continuation-token", 0))
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><ETag>{escape(etag(objects[key]))}</ETag>"
            f"<Size>{len(objects[key])}</Size></Contents>"
            for key in keys[start : start + page]
        )
        if start + page < len(keys):
            rows += f"<NextContinuationToken>{start + page}</NextContinuationToken>"
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        self.say(200, f'<ListBucketResult xmlns="{space}">{rows}</ListBucketResult>'.encode())

    def object(self, key: str) -> None:
        with self.server.lock:
            self.server.asked.append(key)
            what = self.server.trouble(len(self.server.asked))
        content = self.server.objects.get(key)
        if what.isdigit():
            self.say(int(what))
        elif content is None:
            self.say(404)
        elif self.headers["range"] is None:
            self.part(content, what, 200)
        elif self.headers["if-match"] != etag(content):
            self.say(412)
        else:
            first, last = map(int, re.findall(r"\d+", self.headers["range"]))
            self.part(content[first : last + 1], what)

    def part(self, part: bytes, what: str, status: int = 206) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if what == "stall":
            time.sleep(0.5)
        self.close_connection = bool(what)
        self.wfile.write(part[: len(part) // 2] if what else part)

    def say(self, status: int, body: bytes = b"") -> None:
        if code := CODES.get(status):
            body = f"<Error><Code>{code}</Code><Message>{code}!</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
