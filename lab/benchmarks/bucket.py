"""A bucket, and an instance's metadata: `python -m lab.benchmarks.bucket DIRECTORY`, which holds the objects.

It answers what `fetch` and `unpack` ask, believes every signature, and says its port first.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

NAME = "bucket"

TOLD = {
    "ami-id": "ami-1",
    "placement/region": "us-east-1",
    "iam/security-credentials/": "role",
    "iam/security-credentials/role": json.dumps({"AccessKeyId": "a", "SecretAccessKey": "s", "Token": "t"}),
}
"""By path of the metadata."""


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    directory: ClassVar[Path]

    def log_message(self, *_: object) -> None: ...

    def do_PUT(self) -> None:
        """The metadata's token."""
        self._say(b"token")

    def do_GET(self) -> None:
        """Metadata, an object or a part of it, or which there are."""
        path, _, query = self.path.partition("?")
        if path.startswith("/latest/meta-data/"):
            self._say(TOLD[path.removeprefix("/latest/meta-data/")].encode())
        elif key := path.removeprefix(f"/{NAME}/"):
            self._send(self.directory / key)
        else:
            self._list(urllib.parse.parse_qs(query)["prefix"][0])

    def _send(self, file: Path) -> None:
        size = file.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        first, last = (int(asked[1]), int(asked[2])) if asked else (0, size - 1)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        with file.open("rb") as content:
            self.connection.sendfile(content, first, last - first + 1)

    def _list(self, prefix: str) -> None:
        rows = "".join(
            f'<Contents><Key>{key}</Key><ETag>"1"</ETag><Size>{file.stat().st_size}</Size></Contents>'
            for file in sorted(self.directory.rglob("*"))
            if file.is_file() and (key := str(file.relative_to(self.directory))).startswith(prefix)
        )
        self._say(f"<ListBucketResult>{rows}</ListBucketResult>".encode())

    def _say(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    _Answer.directory = Path(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
