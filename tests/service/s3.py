"""A server that answers as S3 and as the instance metadata service do, as far as `fetch.py` asks them."""

from __future__ import annotations

import base64
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
        self.parts: dict[str, list[int]] = {}
        """Sizes of an object's parts, by key; of others there are none: they were put at once."""
        self.hashed = "SHA256"
        """The algorithm of the checksums that were asked for when the objects were put."""
        self.tag: str | None = None
        """What the instance's metadata say of its peers."""
        self.attributes = 0
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
        elif not self.is_signed():
            self.say(403)
        elif url.query == "attributes=":
            self.attributes(key)
        elif key:
            self.object(key)
        else:
            self.listing(dict(urllib.parse.parse_qsl(url.query)))

    def is_signed(self) -> bool:
        """S3 refuses a request with a header of its own that the signature leaves out."""
        signed = re.search("SignedHeaders=([^,]*)", self.headers.get("authorization", ""))
        own = {name.lower() for name in self.headers if name.lower().startswith("x-amz-")}
        return signed is not None and own <= {*signed[1].split(";")}

    def metadata(self, path: str) -> None:
        keys = {"AccessKeyId": "AKIA", "SecretAccessKey": "se/cret", "Token": "to+ken="}
        told = {
            "ami-id": "ami-1",
            "instance-type": "g6.2xlarge",
            "placement/region": "eu-west-1",
            "placement/availability-zone": "eu-west-1b",
            "local-ipv4": "127.0.0.1",
            "iam/security-credentials/": "role",
            "iam/security-credentials/role": json.dumps(keys),
        }
        if self.server.tag is not None:
            told["tags/instance/spotrelay:peers"] = self.server.tag
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

    def attributes(self, key: str) -> None:
        self.server.attributes += 1
        content = self.server.objects.get(key)
        if content is None:
            self.say(404)
            return
        asked = self.headers["x-amz-object-attributes"].split(",")
        assert asked == ["ETag", "Checksum", "ObjectParts"]
        sizes, algorithm = self.server.parts.get(key, []), self.server.hashed

        def checksum(part: bytes) -> str:
            text = base64.b64encode(hashlib.sha256(part).digest()).decode()
            return f"<Checksum{algorithm}>{text}</Checksum{algorithm}>"

        first = int(self.headers.get("x-amz-part-number-marker", 0))
        page, rows, at = self.server.page, "", sum(sizes[:first])
        for number, size in enumerate(sizes[first : first + page], first + 1):
            rows += f"<Part><PartNumber>{number}</PartNumber><Size>{size}</Size>"
            rows += f"{checksum(content[at : at + size])}</Part>"
            at += size
        if sizes:
            is_truncated = str(first + page < len(sizes)).lower()
            rows = f"<ObjectParts><IsTruncated>{is_truncated}</IsTruncated>{rows}"
            rows += f"<NextPartNumberMarker>{first + page}</NextPartNumberMarker></ObjectParts>"
        told = etag(content).strip('"')
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        self.say(
            200,
            f'<GetObjectAttributesResponse xmlns="{space}"><ETag>{told}</ETag>'
            f"<Checksum>{checksum(content)}</Checksum>{rows}</GetObjectAttributesResponse>".encode(),
        )

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
