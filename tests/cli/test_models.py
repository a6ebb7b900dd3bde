"""What `validate --account`, `up` and `update` say of models that can't be used."""

from __future__ import annotations

from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from spotrelay.file.instance import web
from spotrelay.file.instance.fetch import FetchError, Object
from spotrelay.file.instance.web import Seen
from spotrelay.file.service import Service, load
from spotrelay.operator.aws.models import Stored
from spotrelay.operator.cli import models
from spotrelay.plane.aws.clients import Clients

GIB = 1024**3

FILE = """\
service: {{replicas: 1}}
resources: {{accelerators: L4, ports: 8081, disk_size: 100}}
spotrelay:
  peers: {peers}
  models: [{{source: s3://b-1/llama, path: {path}}}, {{source: s3://b-2, path: /models/b}}]
run: serve
"""


def found(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    there: Stored,
    path: str = "/models/a",
    *,
    attributes: dict[str, Any] | None = None,
) -> tuple[Service, models.Found]:
    """What becomes of a service with two models, if both are as this one."""
    peers = "true" if attributes is not None else "false"
    (tmp_path / "chat.yaml").write_text(FILE.format(path=path, peers=peers))
    service = load(tmp_path / "chat.yaml")
    monkeypatch.setattr(models, "stored", lambda *_: there)
    session: Any = boto3.Session("key", "secret", region_name="us-east-1")
    clients = Clients(session)
    with Stubber(clients.s3) as stubber:
        for bucket, prefix in (("b-1", "llama/"), ("b-2", "")):
            for one in there.listed if attributes is not None else ():
                if not one.size:
                    continue
                asked = {
                    "Bucket": bucket,
                    "Key": f"{prefix}{one.key}",
                    "MaxParts": 1,
                    "ObjectAttributes": ANY,
                }
                if attributes:
                    stubber.add_response("get_object_attributes", attributes, asked)
                else:
                    stubber.add_client_error("get_object_attributes", "AccessDenied", "no", 403)
        return service, models.found(clients, [service])


def test_a_bucket_of_another_region_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each start would fetch it from afar; one whose region S3 doesn't tell isn't judged."""
    _, told = found(monkeypatch, tmp_path, Stored("eu-west-1", 3, 8, "0" * 64))
    assert [problem.field for problem in told.problems] == [
        "spotrelay.models[0].source",
        "spotrelay.models[1].source",
    ]
    assert "b-1 is in eu-west-1, and this is us-east-1: " in told.problems[0].message
    assert "copy it to a bucket in us-east-1" in told.problems[0].message
    assert found(monkeypatch, tmp_path, Stored("", 3, 8, "0" * 64))[1].problems == []


@pytest.mark.parametrize(
    ("each_gib", "path", "needed"),
    [
        (12, "/models/a", None),
        (13, "/models/a", 101),
        (25, "/opt/dlami/nvme/a", None),
        (26, "/opt/dlami/nvme/a", 101),
    ],
)
def test_a_disk_without_room_is_refused(
    each_gib: int, path: str, needed: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For image and models together; what lies on the instance store takes none of it."""
    _, told = found(monkeypatch, tmp_path, Stored("us-east-1", 3, each_gib * GIB, "0" * 64), path)
    words = [(problem.field, problem.message) for problem in told.problems]
    if needed is None:
        assert words == []
        return
    ((field, message),) = words
    assert field == "resources.disk_size"
    assert "100 GiB have no room for the models' " in message
    assert f" GB beside the image's 75: choose {needed} or more" in message


def test_what_is_there_is_pinned_by_its_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the instances' plan names it."""
    service, told = found(monkeypatch, tmp_path, Stored("us-east-1", 3, 8, "0" * 64))
    assert told.digests == {model.source.url: "0" * 64 for model in service.models}


WEB = """\
service: {{replicas: 1}}
resources: {{accelerators: L4, ports: 8081, disk_size: 100}}
spotrelay: {{models: [{{source: "https://x.org/q4.gguf", path: {path}, sha256: {sha256}}}]}}
run: serve
"""


def of_the_web(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seen: Seen | Exception, path: str
) -> models.Found:
    """What becomes of a service with a file of a web server."""

    def look(url: str) -> Seen:
        assert url == "https://x.org/q4.gguf"
        if isinstance(seen, Exception):
            raise seen
        return seen

    monkeypatch.setattr(web, "look", look)
    (tmp_path / "chat.yaml").write_text(WEB.format(path=path, sha256="ab" * 32))
    session: Any = boto3.Session("key", "secret", region_name="us-east-1")
    return models.found(Clients(session), [load(tmp_path / "chat.yaml")])


@pytest.mark.parametrize(
    ("gib", "path", "problems"),
    [(25, "/models/q4.gguf", 0), (26, "/models/q4.gguf", 1), (26, "/opt/dlami/nvme/q4.gguf", 0)],
)
def test_a_file_of_a_web_server_needs_room_too(
    gib: int, path: str, problems: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As its server says it; S3 isn't asked, and nothing is pinned beside the file's hash."""
    told = of_the_web(monkeypatch, tmp_path, Seen("https://cdn.x.org/1", gib * GIB, "", True), path)
    assert [problem.field for problem in told.problems] == ["resources.disk_size"] * problems
    assert (told.files, told.notices, told.digests) == ({"https://x.org/q4.gguf": gib * GIB}, [], {})


@pytest.mark.parametrize("error", [FetchError("there is no x"), OSError("no route"), IncompleteRead(b"")])
def test_what_this_machine_cannot_reach_is_a_notice(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An instance may reach it."""
    told = of_the_web(monkeypatch, tmp_path, error, "/models/q4.gguf")
    assert told.problems == []
    assert told.notices == [
        "chat: whether instances can fetch https://x.org/q4.gguf isn't known, nor its size: from here, "
        f"{error}"
    ]
    assert told.files == {"https://x.org/q4.gguf": None}


SHA = {"ChecksumSHA256": "x="}

HASHES = {
    "parts": ({"ObjectParts": {"Parts": [{"Size": 8 * 1024**2, **SHA}]}}, None),
    "put at once": ({"Checksum": SHA, "ObjectParts": {}}, None),
    "another algorithm": (
        {"ObjectParts": {"Parts": [{"Size": 8 * 1024**2}]}},
        "S3 has no SHA-256 of the parts of w",
    ),
    "none": (
        {"Checksum": {"ChecksumCRC64NVME": "x="}},
        "S3 has no SHA-256 of the parts of w, each of 32 MiB at most",
    ),
    "large parts": ({"ObjectParts": {"Parts": [{"Size": 64 * 1024**2, **SHA}]}}, "each of 32 MiB at most"),
    "denied": ({}, "these credentials need s3:GetObjectAttributes"),
}


@pytest.mark.parametrize(("attributes", "words"), HASHES.values(), ids=HASHES)
def test_what_peers_cannot_bring_is_told_ahead(
    attributes: dict[str, Any], words: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is no error: replicas fetch from the bucket alone. Nobody asks for objects without a byte."""
    there = Stored("us-east-1", 1, 8, "0" * 64, [Object("w", 8 * 1024**2, '"x"'), Object("e", 0, '"y"')])
    _, told = found(monkeypatch, tmp_path, there, attributes=attributes)
    assert told.problems == []
    if words is None:
        assert told.notices == []
        return
    assert len(told.notices) == 2
    for notice, source in zip(told.notices, ("s3://b-1/llama", "s3://b-2"), strict=True):
        assert source in notice
        assert notice.startswith("chat: ")
        assert words in notice
