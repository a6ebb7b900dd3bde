"""`spotrelay retire`, as an operator meets it, and what every command says that can't go on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import boto3
import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    LoginRefreshRequired,
    SSOTokenLoadError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)
from moto import mock_aws
from typer.testing import CliRunner

from spotrelay.operator.cli.app import app
from spotrelay.operator.cli.control_plane import explained
from spotrelay.operator.cli.errors import EXIT_NO_ACCESS
from spotrelay.operator.cli.options import Where
from spotrelay.operator.cli.telling import Teller
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER, service_parameter

REGION = "us-east-1"


@pytest.fixture(autouse=True)
def _hermetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine's own AWS configuration."""
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@dataclass(frozen=True)
class Region:
    """A region with a control plane and one service, `chat`."""

    sqs: Any
    ssm: Any
    queue_url: str

    def told(self) -> list[dict[str, str]]:
        """What the tick queue holds."""
        messages = self.sqs.receive_message(QueueUrl=self.queue_url, MaxNumberOfMessages=10)
        return [json.loads(message["Body"]) for message in messages.get("Messages", [])]


@pytest.fixture
def aws() -> Iterator[None]:
    """An empty AWS account."""
    with mock_aws():
        yield


@cache
def clients() -> tuple[Any, Any]:
    """SQS's and Parameter Store's: for all tests, because they take a while to build."""
    session = boto3.Session("testing", "testing", region_name=REGION)
    return session.client("sqs"), session.client("ssm")


@pytest.fixture
def region(aws: None) -> Region:
    """A tick queue and the documents that name it, in an emulated AWS."""
    sqs, ssm = clients()
    queue_url = sqs.create_queue(QueueName="ticks")["QueueUrl"]
    document = json.dumps({"table": "spotrelay", "tick_queue_url": queue_url})
    ssm.put_parameter(Name=CONTROL_PLANE_PARAMETER, Value=document, Type="String")
    ssm.put_parameter(Name=service_parameter("chat"), Value="{}", Type="String")
    return Region(sqs, ssm, queue_url)


def run(command: str, *arguments: str, answer: str | None = None) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, [command, *arguments], input=answer, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_a_removed_service_is_told_to_be_gone(region: Region) -> None:
    """Of a service without a document the control plane hears that its stack is gone."""
    region.ssm.delete_parameter(Name=service_parameter("chat"))
    code, out, err = run("retire", "chat", "--region", REGION, "--yes")
    assert (code, err) == (0, "")
    assert "will take the stack of chat for gone" in out
    assert region.told() == [{"service": "chat", "kind": "removed"}]


def test_a_deployed_service_is_not_retired(region: Region) -> None:
    """As long as there is a document the stack isn't gone: nothing is told, whatever was confirmed."""
    code, _, err = run("retire", "chat", "--region", REGION, "--yes")
    assert code == 2
    assert err == (
        "spotrelay retire: chat is deployed in us-east-1 (parameter /spotrelay/services/chat): "
        "remove its stack first, with `spotrelay down chat`\n"
    )
    assert region.told() == []


@pytest.mark.parametrize("answer", ["\n", "", "n\n"])
def test_nothing_is_told_without_a_yes(region: Region, answer: str) -> None:
    """A mere Enter, a closed standard input and a no leave everything as it is."""
    code, _, err = run("retire", "gone", "--region", REGION, answer=answer)
    assert code == 1
    assert "Aborted" in err
    assert region.told() == []


def test_the_region_may_come_from_the_configuration(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --region it is the one that AWS's own tools would use, and the operator reads which."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    code, out, _ = run("retire", "gone", "--yes")
    assert code == 0
    assert "The control plane of us-east-1" in out
    assert len(region.told()) == 1


def test_a_name_that_no_service_has_is_refused(region: Region) -> None:
    """What can't be a name, such as the file's, is refused before anybody is asked."""
    code, _, err = run("override", "services/chat.yaml", "--region", REGION, "--yes")
    assert code == 2
    assert err.startswith("spotrelay override: 'services/chat.yaml' can't be a service's name")
    assert region.told() == []


def test_a_region_without_a_control_plane_is_named(region: Region) -> None:
    """Whoever asks in the wrong region reads which one that was."""
    code, _, err = run("override", "chat", "--region", "eu-west-1", "--yes")
    assert code == 2
    assert err == (
        "spotrelay override: no control plane in eu-west-1 (no parameter /spotrelay/control-plane): "
        "name its region with --region, or deploy it\n"
    )


@pytest.mark.parametrize("value", ["nonsense", "{}", "[]"])
def test_an_unreadable_control_plane_is_explained(region: Region, value: str) -> None:
    """A parameter that somebody overwrote is no traceback."""
    region.ssm.put_parameter(Name=CONTROL_PLANE_PARAMETER, Value=value, Type="String", Overwrite=True)
    code, _, err = run("override", "chat", "--region", REGION, "--yes")
    assert code == 1
    assert "doesn't name a table and a tick queue: deploy the control plane again" in err


def test_no_region_is_one_line(aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any region the command asks for one."""
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    code, _, err = run("override", "chat", "--yes")
    assert (code, err) == (
        2,
        "spotrelay override: which region? Name it with --region, or set AWS_DEFAULT_REGION\n",
    )


def test_no_credentials_are_one_line() -> None:
    """Without credentials the command says how to have some, and calls nobody."""
    code, _, err = run("override", "chat", "--region", REGION, "--yes")
    assert code == 3
    assert err == (
        "spotrelay override: no AWS credentials (Unable to locate credentials): "
        "set AWS_PROFILE, or run `aws configure`\n"
    )


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (SSOTokenLoadError(error_msg="Token for work does not exist"), "aws sso login"),
        (UnauthorizedSSOTokenError(), "aws sso login"),
        (
            TokenRetrievalError(provider="sso", error_msg="Token has expired"),
            "aws sso login",
        ),
        (LoginRefreshRequired(), "aws login"),
        (CredentialRetrievalError(provider="custom-process", error_msg="no network"), "aws configure list"),
    ],
)
def test_who_must_sign_in_again_is_told_how(error: BotoCoreError, command: str) -> None:
    """Credentials that ended are no access, and the line says what brings new ones."""
    told = explained(error)
    assert told
    assert told.exit_code == EXIT_NO_ACCESS
    assert f"`{command}`" in told


@pytest.mark.parametrize("code", ["ExpiredTokenException", "RequestExpired", "UnrecognizedClientException"])
def test_credentials_that_aws_doesnt_take_are_no_missing_permission(code: str) -> None:
    """Each service has its own word for a session that is over; no list of permissions helps."""
    told = explained(ClientError({"Error": {"Code": code, "Message": "over"}}, "DescribeInstances"))
    assert told
    assert told.exit_code == EXIT_NO_ACCESS
    assert told.startswith("AWS doesn't take these credentials: sign in again")
    assert "permission" not in told


def test_who_waits_without_a_terminal_reads_for_what(capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, again and again; what has happened stays alone on standard output."""
    said = ""
    with Teller(beat_s=0.001) as teller:
        teller.say("deploying")
        teller.now("chat 1/3 ready")
        while said.count("… chat 1/3 ready\n") < 2:
            found = capsys.readouterr()
            assert found.out in ("deploying\n", "")
            said += found.err


def test_nothing_is_told_of_a_wait_while_a_person_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """The question stays the last line."""
    with Teller(beat_s=0.001) as teller:
        teller.now("chat 1/3 ready")
        with teller.paused():
            capsys.readouterr()
            time.sleep(0.02)
            assert capsys.readouterr().err.count("…") <= 1, "one may have been on its way"


def test_the_region_is_found_as_the_aws_cli_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """--region, then AWS_REGION, then AWS_DEFAULT_REGION: boto3 itself doesn't know the second."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    assert Where().session().region_name == "eu-west-3"
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    assert Where().session().region_name == "eu-west-2"
    assert Where("eu-west-1").session().region_name == "eu-west-1"


def test_an_unknown_profile_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile that doesn't exist is named."""
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    code, _, err = run("override", "chat", "--region", REGION)
    assert code == 2
    assert err.startswith("spotrelay override: The config profile (nobody) could not be found: name one that")


def test_an_unreachable_aws_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody answers, the operator reads which address that was."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    code, _, err = run("override", "chat", "--region", REGION)
    assert code == 1
    assert err == (
        'spotrelay override: Could not connect to the endpoint URL: "http://127.0.0.1:9/": is the region'
        " right, or the address of --endpoint-url?\n"
    )


def test_a_missing_permission_says_where_the_needed_ones_are() -> None:
    """AWS's words name the action; the command adds where all of them are listed."""
    refused = ClientError(
        {
            "Error": {
                "Code": "AccessDeniedException",
                "Message": "not authorized to perform: ssm:GetParameters",
            }
        },
        "GetParameters",
    )
    told = explained(refused)
    assert told
    assert told.startswith("you may not do ssm:GetParameters: docs/commands.md lists")
    assert told.endswith(f"AWS says: {refused}")
    assert told.exit_code == EXIT_NO_ACCESS


def test_a_missing_permission_is_named_where_aws_doesnt() -> None:
    """Some answers don't say which action it was: the operation does."""
    refused = ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": "no"}}, "DescribeInstances")
    told = explained(refused)
    assert told
    assert told.startswith("you may not do ec2:DescribeInstances: ")
