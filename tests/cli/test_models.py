"""What `validate --account`, `up` and `update` say of models that can't be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from spotrelay.file.instance.fetch import Object
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
