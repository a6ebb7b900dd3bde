"""Models from a bucket of the local cloud: a server reads them, and what is wrong with one is told."""

from __future__ import annotations

import hashlib
import json
import socket
import uuid
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from spotrelay.file.instance import bundle, models
from spotrelay.file.service import Service, load, user_data
from spotrelay.file.values.files import Bucket, WebFile
from spotrelay.operator.aws.models import stored
from spotrelay.operator.cli.app import app
from spotrelay.operator.cli.models import found
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.core.names import TAG_PEERS
from tests.local.conftest import Aws, Ground, eventually
from tests.local.test_instance_files import address_of, allow, get, launched_from
from tests.service.https import Web

pytestmark = pytest.mark.xdist_group("local")

FILE = """\
service: {{replicas: 1}}
resources: {{accelerators: L4, ports: 8081}}
spotrelay: {{models: [{{source: s3://{bucket}/llama/8b/, path: {path}}}]}}
run: cd {path} && exec python -m http.server --bind "$HOST" "$PORT"
"""


@pytest.fixture
def bucket(ground: Ground) -> str:
    """With a model of two objects, and another beside it."""
    name, s3 = f"models-{uuid.uuid4().hex[:8]}", ground.aws.client("s3")
    s3.create_bucket(Bucket=name)
    for key, body in {
        "llama/8b/weights": bytes(9 * 1024 * 1024) + b"end",
        "llama/8b/sub/config.json": b"{}",
        "llama/8b/": b"",
        "llama/8b-other/x": b"",
    }.items():
        s3.put_object(Bucket=name, Key=key, Body=body)
    return name


@pytest.fixture
def service(bucket: str, tmp_path: Path) -> Service:
    """It serves its model's files."""
    file = tmp_path / "chat.yaml"
    file.write_text(FILE.format(bucket=bucket, path=tmp_path / "models" / "llama"))
    return load(file)


def running(ground: Ground, service: Service, bucket: str) -> str:
    """The address of an instance whose role may do what the service's stack gives it."""
    below = [f"arn:aws:s3:::{bucket}/llama/8b", f"arn:aws:s3:::{bucket}/llama/8b/*"]
    listing = allow("s3:ListBucket", f"arn:aws:s3:::{bucket}")
    listing["Condition"] = {"StringLike": {"s3:prefix": ["llama/8b", "llama/8b/*"]}}
    statements = [*(allow("s3:GetObject", one) for one in below), listing]
    id_ = launched_from(ground, user_data(service, "us-east-1"), statements)
    return address_of(ground.aws, id_)


def test_a_server_reads_its_model(ground: Ground, service: Service, bucket: str) -> None:
    """Fetched with the role's permission for that prefix alone; the server starts once all is there."""
    address = running(ground, service, bucket)
    eventually(lambda: get(address, "weights"), "it serves")
    with urlopen(f"http://{address}:8081/weights", timeout=5) as answer:
        assert answer.read() == bytes(9 * 1024 * 1024) + b"end"
    assert get(address, "sub/config.json") == "{}"


def test_an_instance_gets_its_model_from_the_peer_that_its_tag_names(
    ground: Ground, bucket: str, tmp_path: Path
) -> None:
    """The tag is in its metadata, and what the peer sends has the hashes that S3 has."""
    s3 = ground.aws.client("s3")
    s3.put_object(Bucket=bucket, Key="llama/9b/weights", Body=b"0.1 0.2", ChecksumAlgorithm="SHA256")
    below = f"arn:aws:s3:::{bucket}/llama/9b/*"
    statements = [
        allow("s3:GetObject", f"arn:aws:s3:::{bucket}/*"),
        allow("s3:GetObjectAttributes", below),
        allow("s3:ListBucket", f"arn:aws:s3:::{bucket}"),
    ]
    shows_tags = {"MetadataOptions": {"InstanceMetadataTags": "enabled"}}

    def start(name: str, peers: str) -> tuple[str, str]:
        """An instance with a disk of its own: its address, and what it says once it serves."""
        file, archive = tmp_path / f"{name}.yaml", tmp_path / f"{name}.tar.gz"
        text = FILE.format(bucket=bucket, path=tmp_path / name).replace("8b", "9b")
        file.write_text(text.replace("spotrelay: {", "spotrelay: {peers: true, "))
        service = load(file)
        sha256 = bundle.write(service, archive)
        s3.upload_file(str(archive), bucket, archive.name)
        text = user_data(service, "us-east-1", bundle.Archive(f"s3://{bucket}/{archive.name}", sha256))
        id_ = launched_from(ground, text, statements, shows_tags, {TAG_PEERS: peers})
        address = address_of(ground.aws, id_)
        eventually(lambda: get(address, "weights") == "0.1 0.2", "it serves")
        return address, ground.aws.ec2.get_console_output(InstanceId=id_, Latest=True)["Output"]

    first, said = start("first", "none")
    assert "came from" not in said
    _, said = start("second", f"a:{first} b:{first}")
    assert f"spotrelay: 7 bytes of s3://{bucket}/llama/9b came from {first}" in said


def reached_from(ground: Ground) -> str:
    """The address of this machine at which instances reach it."""
    (id_,) = ground.running(1, ["g6.2xlarge"])
    address = address_of(ground.aws, id_)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect((address, 9))  # sends nothing
        return str(asked.getsockname()[0])


def test_a_server_reads_a_file_of_a_web_server(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its program comes with the service's files. This machine isn't of the internet, so one refuses it."""
    content, host = bytes(9 * 1024 * 1024) + b"end", reached_from(ground)
    web = Web(tmp_path, {"/weights": content}, host)
    s3, bucket = ground.aws.client("s3"), f"files-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)

    def start(name: str) -> str:
        """The address of an instance with a disk of its own."""
        directory = tmp_path / name
        file, archive = tmp_path / f"{name}.yaml", tmp_path / f"{name}.tar.gz"
        text = FILE.format(bucket="b-1", path=directory) + f"envs: {{SSL_CERT_FILE: {web.authority}}}\n"
        source = "source: https://example.com/weights, sha256: " + hashlib.sha256(content).hexdigest()
        text = text.replace("source: s3://b-1/llama/8b/", source)
        file.write_text(text.replace(f"path: {directory}}}", f"path: {directory}/w}}"))
        service = load(file)
        (model,) = service.models
        assert isinstance(model.source, WebFile)
        # No file may name an address of a private network.
        here = WebFile(f"{web.url}/weights", model.source.sha256)
        service = replace(service, models=(replace(model, source=here),))
        sha256 = bundle.write(service, archive)
        s3.upload_file(str(archive), bucket, archive.name)
        text = user_data(service, "us-east-1", bundle.Archive(f"s3://{bucket}/{archive.name}", sha256))
        statements = [allow("s3:GetObject", f"arn:aws:s3:::{bucket}/*")]
        return address_of(ground.aws, launched_from(ground, text, statements))

    try:
        refused = start("refused")
        words = eventually(lambda: said(refused), "the reason is told")
        assert f"is at {host} ({host}), an address of a private network" in words
        shipped = models.web_script()
        monkeypatch.setattr(models, "web_script", lambda: shipped.replace(".is_global", " is not None"))
        address = start("fetched")
        eventually(lambda: get(address, "w"), "it serves")
        with urlopen(f"http://{address}:8081/w", timeout=5) as answer:
            assert answer.read() == content
    finally:
        web.close()


def said(address: str) -> str | None:
    """What an instance in a crash loop tells; None: nothing yet."""
    try:
        urlopen(f"http://{address}:8081/", timeout=2)
    except HTTPError as error:
        return error.read().decode()
    except OSError:
        return None
    return None


def test_a_model_that_was_changed_since_the_deployment_is_told(
    ground: Ground, service: Service, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server starts with another model than was deployed, and the replica says why."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", ground.aws.endpoint)
    there = stored(Clients(ground.aws.session), Bucket(bucket, "llama/8b"))
    assert (there.objects, there.size) == (2, 9 * 1024 * 1024 + 5)
    (model,) = service.models
    deployed = replace(service, models=(replace(model, digest=there.digest),))
    ground.aws.client("s3").put_object(Bucket=bucket, Key="llama/8b/weights", Body=b"other")
    address = running(ground, deployed, bucket)
    words = eventually(lambda: said(address), "the reason is told")
    assert (
        f"spotrelay: s3://{bucket}/llama/8b isn't what was deployed, somebody has changed it since" in words
    )
    assert not Path(model.path).exists()


def test_validate_looks_for_the_models(
    aws: Aws, service: Service, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the account, with the operator's credentials: one line for each that isn't there."""
    for name, value in {
        "AWS_ENDPOINT_URL": aws.endpoint,
        "AWS_ACCESS_KEY_ID": aws.credentials[0],
        "AWS_SECRET_ACCESS_KEY": aws.credentials[1],
    }.items():
        monkeypatch.setenv(name, value)
    arguments = ["validate", str(service.path), "--account", "--region", "us-east-1", "--json"]
    good = CliRunner().invoke(app, arguments)
    assert good.exit_code == 0, good.output
    text = service.path.read_text()
    entry = text.partition("models: [")[2].partition("]}")[0]
    wrong = [
        entry.replace(bucket, "no-such-bucket").replace("/models/llama", "/models/1"),
        entry.replace("llama/8b/", "llama/70b").replace("/models/llama", "/models/2"),
    ]
    service.path.write_text(text.replace(entry, f"{entry}, {', '.join(wrong)}"))
    bad = CliRunner().invoke(app, arguments)
    assert bad.exit_code == 2
    told = [f"{one['field']}: {one['message']}" for one in json.loads(bad.stdout)["problems"]]
    assert told == [
        "spotrelay.models[1].source: there is no bucket no-such-bucket: make it, and copy the model there",
        f"spotrelay.models[2].source: there is nothing below s3://{bucket}/llama/70b/: copy the model there,"
        " or name its prefix",
    ]


def test_a_source_that_is_not_permitted_says_what_is_needed(
    aws: Aws, bucket: str, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With IAM's own words."""
    somebody = aws.assume(allow("s3:ListBucket", "arn:aws:s3:::another"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.endpoint)
    (problem,) = found(Clients(somebody.session), [service]).problems
    assert problem.field == "spotrelay.models[0].source"
    assert f"s3://{bucket}/llama/8b can't be listed: these credentials need s3:ListBucket" in problem.message
    assert "AccessDenied" in problem.message
