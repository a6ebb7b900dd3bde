"""`spotrelay request`: what is sent to a service's own address, and what is said of the answer."""

from __future__ import annotations

import json
import shlex
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from typer.testing import CliRunner

from spotrelay.operator.cli import control_plane
from spotrelay.operator.cli.app import app
from spotrelay.operator.deploy.stacks import Stack
from spotrelay.operator.request import Entrance, Request, Sender, UnansweredError, curl, of_probe
from spotrelay.plane.core.spec import ReadinessProbe, ServiceSpec
from tests import json_documents
from tests.examples import demo_spec

REGION = "us-east-1"
OWN = "web-0123456789.us-east-1.elb.amazonaws.com"
CHAT = ReadinessProbe(
    "/v1/chat/completions",
    {"model": "llama", "messages": [{"role": "user", "content": "Ready?"}], "max_tokens": 1},
)
STREAM = b"".join(
    b"data: " + json.dumps({"choices": [{"delta": {"content": word}}]}).encode() + b"\n\n"
    for word in ("Still ", "here, naïve.")
)
DONE = b"data: [DONE]\n\n"


@dataclass
class Server:
    """An endpoint that answers every request alike, and remembers what it was asked."""

    status: int = 200
    content_type: str = "text/event-stream"
    pieces: tuple[bytes, ...] = (STREAM[:70], STREAM[70:], DONE)
    is_cut: bool = False
    seen: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def answering() -> Iterator[Server]:
    """A `Server` that listens."""
    made = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            made.seen.append((self.command, self.path, dict(self.headers), body))
            self.send_response(made.status)
            self.send_header("Content-Type", made.content_type)
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")  # else a second request may meet one just closed
            self.end_headers()
            for piece in made.pieces:
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            if not made.is_cut:
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = True

        do_GET = do_POST = do_PUT = _answer  # noqa: N815  # as http.server calls them

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        made.port = listening.server_address[1]
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield made
        listening.shutdown()
        thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    """A running server."""
    with answering() as made:
        yield made


class Account:
    """The region's control plane, and its service `demo` with the outputs of its stack."""

    region = REGION

    def __init__(self) -> None:
        self.clients = self.services = self.secrets_manager = self
        self.secrets: dict[str, str] = {}
        self.outputs: dict[str, str] = {}
        self.probe: ReadinessProbe | None = CHAT

    def deploy(self, outputs: dict[str, str], probe: ReadinessProbe | None = CHAT) -> None:
        """From now on it is so."""
        self.outputs, self.probe = outputs, probe

    def get(self, service: str, *, fresh: bool) -> ServiceSpec:
        """As `ports.Services.get`."""
        return replace(demo_spec(service), readiness_probe=self.probe)

    def find(self, name: str) -> Stack:
        """As `Stacks.find`."""
        return Stack(name, name, "CREATE_COMPLETE", self.outputs)

    def get_secret_value(self, *, SecretId: str) -> dict[str, str]:  # noqa: N803  # as boto3 has it
        """As Secrets Manager."""
        return {"SecretString": self.secrets[SecretId]}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    """The account, which every command finds."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    made = Account()
    monkeypatch.setattr(control_plane, "find", lambda _name, _where: made)
    monkeypatch.setattr("spotrelay.operator.deploy.stacks.Stacks", lambda clients: clients)
    return made


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, ["request", "demo", *arguments], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_a_chat_is_sent_and_what_the_model_says_is_shown(account: Account, server: Server) -> None:
    """The probe names path and model; the answer isn't cut to the probe's one token, and is streamed."""
    account.deploy({"Address": server.address, "Endpoint": OWN})
    code, out, err = run("--prompt", "Still there?")
    assert (code, out) == (0, "Still here, naïve.")
    assert err.startswith("200 OK: first byte after ")
    ((method, path, headers, body),) = server.seen
    assert (method, path, headers["Content-Type"]) == ("POST", CHAT.path, "application/json")
    assert json.loads(body) == {
        "model": "llama",
        "messages": [{"role": "user", "content": "Still there?"}],
        "stream": True,
    }


def test_json_is_one_document_of_the_same(account: Account, server: Server) -> None:
    """Scripts read what people do."""
    account.deploy({"Address": server.address, "Endpoint": OWN})
    code, out, err = run("--json")
    made = json.loads(out)
    json_documents.check("request", made)
    assert (code, err) == (0, "")
    assert (made["status"], made["answer"], made["why_not"]) == (200, "Still here, naïve.", None)
    assert 0 <= made["first_byte_s"] <= made["total_s"]


def test_the_load_balancers_key_is_read_and_sent(account: Account, server: Server) -> None:
    """It stands in a secret that the stack names."""
    account.secrets["arn:key"] = "sesame"
    account.deploy({"Address": server.address, "Endpoint": OWN, "ApiKeyweb": "arn:key"})
    assert run()[0] == 0
    assert server.seen[0][2]["Authorization"] == "Bearer sesame"


def test_of_a_probe_that_is_no_chat_the_same_is_asked(account: Account, server: Server) -> None:
    """Path, method, body and headers are the probe's, and the answer is shown as it is."""
    probe = ReadinessProbe("/v1/images", {"prompt": "a lighthouse"}, headers={"X-Who": "me"})
    account.deploy({"Address": server.address, "Endpoint": OWN}, probe)
    server.content_type, server.pieces = "application/json", (b'{"image": 1}',)
    assert run()[:2] == (0, '{"image": 1}')
    method, path, headers, body = server.seen[0]
    assert (method, path, headers["X-Who"]) == ("POST", "/v1/images", "me")
    assert json.loads(body) == {"prompt": "a lighthouse"}


def test_any_other_request_can_be_said(account: Account, server: Server, tmp_path: Any) -> None:
    """A path alone is a GET, a body makes it a POST, and a file's content can be the body."""
    account.deploy({"Address": server.address, "Endpoint": OWN})
    server.content_type, server.pieces = "text/plain", (b"fine",)
    (tmp_path / "body").write_bytes(b"\x00\x01")
    assert run("--path", "/metrics")[1] == "fine"
    run("--path", "/x", "--data", '{"a": 1}')
    run("--path", "/x", "--method", "put", "--data", f"@{tmp_path}/body")
    assert [(method, path, body) for method, path, _, body in server.seen] == [
        ("GET", "/metrics", b""),
        ("POST", "/x", b'{"a": 1}'),
        ("PUT", "/x", b"\x00\x01"),
    ]


def test_a_chat_without_a_probe_asks_for_the_models_name_first(account: Account, server: Server) -> None:
    """vLLM has no other way to say it; a server that has none is told so."""
    account.deploy({"Address": server.address, "Endpoint": OWN}, ReadinessProbe("/health", None))
    server.content_type, server.pieces = "application/json", (b'{"data": [{"id": "qwen"}]}',)
    assert run("--prompt", "Hi")[0] == 0
    assert [seen[1] for seen in server.seen] == ["/v1/models", "/v1/chat/completions"]
    assert json.loads(server.seen[1][3])["model"] == "qwen"
    server.status, server.pieces = 404, (b"no",)
    code, _, err = run("--prompt", "Hi")
    assert code == 1
    assert "GET /v1/models names no model (404 Not Found): say --path and --data instead" in err


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "a key of its own"),
        (404, "the server doesn't know this path"),
        (418, "POST /v1/chat/completions was refused"),
        (502, "spotrelay logs demo ID"),
        (503, "no replica is in rotation"),
        (504, "spotrelay.idle_timeout_seconds"),
    ],
)
def test_a_refusal_is_told_in_words_with_the_servers_last(
    account: Account, server: Server, status: int, words: str
) -> None:
    """Each says what it means and what to do; the exit code is 1, with --json, too."""
    account.deploy({"Address": server.address, "Endpoint": OWN})
    server.status, server.content_type, server.pieces = status, "text/plain", (b"sorry",)
    code, out, err = run()
    assert (code, out) == (1, "")
    assert words in err
    assert err.endswith("sorry\n")
    code, out, _ = run("--json")
    assert code == 1
    assert words in json.loads(out)["why_not"]
    assert json.loads(out)["answer"] == "sorry"


@pytest.mark.parametrize(
    ("pieces", "is_cut", "words"),
    [
        ((STREAM,), False, "the stream ended without [DONE]"),
        ((STREAM,), True, "the connection ended in the middle of the answer"),
        ((b'data: {"error": {"message": "out of memory"}}\n', DONE), False, "gave up: out of memory"),
        ((b"data: <html>\n", DONE), False, "what is no chat: <html>"),
    ],
)
def test_an_answer_that_is_cut_is_no_success(
    account: Account, server: Server, pieces: tuple[bytes, ...], is_cut: bool, words: str
) -> None:
    """A stream begins with 200 whatever becomes of it."""
    account.deploy({"Address": server.address, "Endpoint": OWN})
    server.pieces, server.is_cut = pieces, is_cut
    code, _, err = run()
    assert code == 1
    assert words in err


def test_a_local_cloud_stands_for_the_load_balancer(
    account: Account, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No DNS knows its load balancers: requests go to its own address, and name whom they mean."""
    account.deploy({"Address": f"http://{OWN}", "Endpoint": OWN})
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
    assert run()[:2] == (0, "Still here, naïve.")
    assert server.seen[0][2]["Host"] == OWN


def test_nobody_there_is_told_with_what_to_do() -> None:
    """Connection refused, and names that the DNS doesn't know: internal ones, domains, and others."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        refused = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(UnansweredError, match=r"can't be connected to \(.*refused.*\): is it still dep"):
            Sender(Entrance(refused, OWN)).send(Request("GET", "/"))
    for address, endpoint, words in (
        ("http://internal-x.invalid", "internal-x.invalid", "docs/networking.md, Reaching an internal"),
        ("https://chat.invalid", OWN, f"it must lead to {OWN}"),
        ("http://x.invalid", "x.invalid", "has the service been removed"),
    ):
        with pytest.raises(UnansweredError, match=words):
            Sender(Entrance(address, endpoint)).send(Request("GET", "/"))


def test_a_service_behind_a_balancer_of_the_users_is_told(account: Account) -> None:
    """Its stack has no address."""
    account.deploy({"ParameterName": "/spotrelay/services/demo"})
    code, _, err = run()
    assert code == 2
    assert "behind a load balancer of yours" in err


def test_wrong_usage_is_told(account: Account) -> None:
    """Options that contradict each other, a path that is none, a file that isn't there."""
    account.deploy({"Address": f"http://{OWN}", "Endpoint": OWN})
    for arguments, words in (
        (["--prompt", "x", "--data", "y"], "leave out --data"),
        (["--path", "v1/models"], "expected a path such as /v1/chat/completions, got 'v1/models'"),
        (["--data", "@/nowhere"], "--data: /nowhere: No such file"),
    ):
        code, _, err = run(*arguments)
        assert (code, words in err) == (2, True), err


def test_curl_sends_the_same() -> None:
    """The command that is printed has the key's secret, the host of a local cloud, and the body, quoted."""
    plain = shlex.split(curl(Entrance(f"http://{OWN}", OWN), of_probe(CHAT, "Who's there?"), None))
    assert plain[:3] == ["curl", "-N", f"http://{OWN}/v1/chat/completions"]
    assert json.loads(plain[-1])["messages"][0]["content"] == "Who's there?"
    local = curl(Entrance(f"http://{OWN}", OWN), Request("GET", "/health"), "http://127.0.0.1:4566/")
    assert local == f"curl http://127.0.0.1:4566/health -H 'Host: {OWN}'"
    keyed = curl(Entrance(f"http://{OWN}", OWN, {"web": "arn:key"}), Request("PUT", "/x", b"1"), None)
    assert "-X PUT" in keyed
    assert '-H "Authorization: Bearer $(aws secretsmanager get-secret-value --secret-id arn:key ' in keyed
