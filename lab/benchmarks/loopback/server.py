"""The server's process, `python -m lab.benchmarks.loopback.server`: prints its port, ends with its input."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
import zlib
from typing import Any

from lab.benchmarks.loopback.account import LoopbackAccount

CONTROL = "/-/"
"""Path of what the benchmark itself asks the server, which isn't counted."""

_SERVICES = {"DynamoDB_20120810": "dynamodb", "AmazonSSM": "ssm", "AmazonSQS": "sqs"}


class Connection(asyncio.Protocol):
    """One client's connection, kept open. As much HTTP as botocore speaks."""

    def __init__(self, account: LoopbackAccount) -> None:
        self._account = account
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection, for the answers."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each request as soon as it is whole."""
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            request, *lines = self._received[:end].decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
            whole = end + 4 + int(headers.get("content-length", "0"))
            if len(self._received) < whole:
                return
            body, self._received = self._received[end + 4 : whole], self._received[whole:]
            self._answer(request.split(" ")[1], headers, body)

    def _answer(self, path: str, headers: dict[str, str], body: bytes) -> None:
        assert self._transport is not None
        status, extra = "200 OK", ""
        kind = "application/x-amz-json-1.0"
        try:
            if path.startswith(CONTROL):
                answer = json.dumps(_control(self._account, path.removeprefix(CONTROL), body)).encode()
            elif target := headers.get("x-amz-target"):
                service, _, action = target.partition(".")
                answer = self._account.json_call(f"{_SERVICES[service]}.{action}", body)
                extra = f"x-amz-crc32: {zlib.crc32(answer)}\r\n"
            else:
                kind = "text/xml;charset=UTF-8"
                answer = self._account.query_call(body)
        except Exception:  # noqa: BLE001 - the client is told, and the benchmark fails with it
            status = "400 Bad Request"
            answer = json.dumps({"__type": "LoopbackError", "message": traceback.format_exc()}).encode()
        self._transport.write(
            f"HTTP/1.1 {status}\r\nServer: Server\r\nDate: Sat, 21 Nov 2026 07:00:00 GMT\r\n"
            f"Content-Type: {kind}\r\nContent-Length: {len(answer)}\r\nConnection: keep-alive\r\n{extra}"
            "x-amzn-RequestId: 7A62C49F347E4FC493316E8E7A9A0001VV4KQNSO5AEMVJF66Q9ASUAAJG\r\n\r\n".encode()
            + answer
        )


def _control(account: LoopbackAccount, command: str, body: bytes) -> Any:
    match command:
        case "load":
            account.load(json.loads(body))
        case "rewind":
            account.rewind(json.loads(body))
        case "clear":
            account.clear()
        case "counts":
            return dict(account.counts)
        case _:
            raise ValueError(f"no such command: {command}")
    return {}


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    account = LoopbackAccount()
    server = await loop.create_server(lambda: Connection(account), "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    # Ends with whoever started it, however that ends.
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve())
