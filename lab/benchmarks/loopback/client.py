"""Starts the loopback server, fills it, and reads what it counted."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).absolute().parents[2]


class Loopback:
    """The server, as the benchmark sees it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.url = f"http://127.0.0.1:{port}"

    def load(
        self,
        *,
        items: Sequence[Mapping[str, Any]] = (),
        parameters: Mapping[str, str] | None = None,
        instances: Mapping[str, Sequence[Mapping[str, str]]] | None = None,
    ) -> None:
        """Add to what there is, and mark it as what `rewind` goes back to."""
        self._ask("load", {"items": items, "parameters": parameters or {}, "instances": instances or {}})

    def rewind(self, partition: str = "") -> None:
        """The table, or one partition of it, as it was marked."""
        self._ask("rewind", partition)

    def clear(self) -> None:
        """Nothing there, nothing counted."""
        self._ask("clear")

    def counts(self) -> Counter[str]:
        """Calls so far, by service and action."""
        return Counter(self._ask("counts"))

    def _ask(self, command: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        try:
            connection.request("POST", f"/-/{command}", json.dumps(body))
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise RuntimeError(f"loopback server: {command}: {answer['message']}")
        return answer


@contextmanager
def loopback() -> Iterator[Loopback]:
    """A server with nothing in it, for as long as it takes."""
    with subprocess.Popen(
        [sys.executable, "-m", "lab.benchmarks.loopback.server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield Loopback(int(server.stdout.readline()))
        finally:
            server.stdin.close()


def pretend_lambda(server: Loopback, settings: Mapping[str, str]) -> None:
    """Make this process's environment that of a function which takes the server for AWS.

    Nothing of the machine's own settings stays: no profile, no credential, no proxy, no log level.
    """
    for name in [
        n for n in os.environ if n.startswith(("AWS_", "POWERTOOLS_")) or n.lower().endswith("_proxy")
    ]:
        del os.environ[name]
    os.environ.update(
        settings,
        AWS_ENDPOINT_URL=server.url,
        AWS_REGION="us-east-1",
        AWS_DEFAULT_REGION="us-east-1",
        AWS_ACCESS_KEY_ID="loopback",
        AWS_SECRET_ACCESS_KEY="loopback",  # noqa: S106 - made up
        AWS_SESSION_TOKEN="loopback",  # noqa: S106 - made up; a function's role has one, which is signed, too
        AWS_CONFIG_FILE=os.devnull,
        AWS_SHARED_CREDENTIALS_FILE=os.devnull,
        AWS_EC2_METADATA_DISABLED="true",
        AWS_LAMBDA_FUNCTION_NAME="on_signal",
        AWS_LAMBDA_LOG_FORMAT="JSON",
    )
