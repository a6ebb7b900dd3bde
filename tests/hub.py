"""A server that answers as Hugging Face does, as far as its library asks for a model's files.

By https://huggingface.co/docs/hub/api and by what that library reads, in its own hf_api.py (model_info,
RepoSibling) and file_download.py (get_hf_file_metadata). Large files lie at another host, to which a
redirect leads.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = 1000
"""Bytes from which on a file is in LFS."""


@dataclass
class Repo:
    """A model: files of its commits, the last of which is main."""

    commits: dict[str, dict[str, bytes]]
    error: str = ""
    """What the hub says instead: GatedRepo."""
    wrong: dict[str, bytes] = field(default_factory=dict)
    """What is sent in the place of a file."""


class Hub(http.server.ThreadingHTTPServer):
    """Repositories by their names."""

    daemon_threads = True

    def __init__(self, repos: dict[str, Repo]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.repos = repos
        self.cut = 0
        """So many answers with a large file's content break off in the middle."""
        self.sent: list[tuple[str, str]] = []
        """Files that were asked for, with the range."""
        self.tokens: dict[str, set[str]] = {"hub": set(), "elsewhere": set()}
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.elsewhere = f"http://localhost:{self.server_port}/elsewhere"
        """Another host's address."""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: clients break off here."""

    def close(self) -> None:
        """Answer nobody any more."""
        self.shutdown()
        self.server_close()


class _Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: object) -> None: ...

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        is_elsewhere = path.startswith("/elsewhere/")
        if path != "/api/agent-harnesses":  # which the library looks up for its own name
            self.server.tokens["elsewhere" if is_elsewhere else "hub"].add(
                self.headers["authorization"] or ""
            )
        if told := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            self.model(told[1], told[2])
        elif told := re.fullmatch(r"(?:/elsewhere)?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self.file(told[1], told[2], told[3], is_elsewhere=is_elsewhere)
        else:
            self.say(404)

    def model(self, name: str, revision: str | None) -> None:
        repo = self.server.repos.get(name)
        if repo is None:
            self.say(404, {"X-Error-Code": "RepoNotFound"})
            return
        if repo.error:
            self.say(403, {"X-Error-Code": repo.error})
            return
        commit = [*repo.commits][-1] if revision in (None, "main") else revision
        if commit not in repo.commits:
            self.say(404, {"X-Error-Code": "RevisionNotFound"})
            return
        has_blobs = "blobs=" in self.path
        siblings = [
            {"rfilename": path, **(_blob(content) if has_blobs else {})}
            for path, content in repo.commits[str(commit)].items()
        ]
        self.say(200, {}, json.dumps({"id": name, "sha": commit, "siblings": siblings}).encode())

    def file(self, name: str, commit: str, path: str, *, is_elsewhere: bool) -> None:
        repo = self.server.repos[name]
        content = repo.commits[commit][path]
        blob = _blob(content)
        etag = blob["lfs"]["sha256"] if "lfs" in blob else blob["blobId"]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{etag}"'}
        if "lfs" in blob and not is_elsewhere:
            headers |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(content))}
            self.say(302, {**headers, "Location": f"{self.server.elsewhere}{self.path}"})
            return
        content = repo.wrong.get(path, content)
        asked = self.headers["range"] or ""
        if self.command == "HEAD":
            self.say(200, {**headers, "Content-Length": str(len(content))})
            return
        self.server.sent.append((path, asked))
        start = int(re.findall(r"\d+", asked)[0]) if asked else 0
        status, part = (206 if asked else 200), content[start:]
        if asked:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        is_cut = "lfs" in blob and self.server.cut > 0
        self.server.cut -= is_cut
        self.say(
            status, {**headers, "Content-Length": str(len(part))}, part[: len(part) // 2] if is_cut else part
        )
        self.close_connection |= is_cut

    def say(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _blob(content: bytes) -> dict[str, Any]:
    """As the hub tells it with `blobs=true`; of a large file git has a pointer."""
    if len(content) >= LARGE:
        sha256 = hashlib.sha256(content).hexdigest()
        pointer = (
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(content)}\n".encode()
        )
        return {
            "size": len(content),
            "blobId": _git(pointer),
            "lfs": {"sha256": sha256, "size": len(content), "pointerSize": len(pointer)},
        }
    return {"size": len(content), "blobId": _git(content)}


def _git(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
