"""What a deployment keeps, against an EC2, a Parameter Store and a CloudFormation of its own."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from lambdas import kept
from spotrelay.plane.core.names import IMAGE_RESOURCE, VERSION_RESOURCE, service_parameter

OLD, NEW, ASKED = "ami-00000000000000001", "ami-00000000000000002", "ami-00000000000000003"


class Account:
    """A launch template with these versions' data, and perhaps a document."""

    def __init__(self, *data: str, **document: Any) -> None:
        self.data = data
        self.document = document

    def get_parameters(self, *, Names: list[str]) -> dict[str, Any]:  # noqa: N803 - boto3's
        """SSM: the document, if there is one."""
        assert Names == [service_parameter("chat")]
        return {"Parameters": [{"Value": json.dumps(self.document)}] if self.document else []}

    def describe_launch_template_versions(
        self,
        *,
        LaunchTemplateId: str,  # noqa: N803
        Versions: list[str],  # noqa: N803
    ) -> dict[str, Any]:
        """EC2: the versions, or its error if one doesn't exist."""
        assert LaunchTemplateId == "lt-1"
        if any(int(number) > len(self.data) for number in Versions):
            raise ClientError({"Error": {"Code": kept.VERSION_NOT_FOUND}}, "DescribeLaunchTemplateVersions")
        return {
            "LaunchTemplateVersions": [
                {"VersionNumber": int(number), "LaunchTemplateData": {"UserData": self.data[int(number) - 1]}}
                for number in reversed(Versions)
            ]
        }

    def version(self, latest: str) -> str:
        """What is deployed."""
        return kept.version("chat", "lt-1", latest, cast("Any", self), cast("Any", self))


def document(version: int, template_id: str = "lt-1") -> dict[str, Any]:
    """As far as it is read."""
    return {"version": version, "launch_template_id": template_id}


@pytest.mark.parametrize(
    ("account", "latest", "deployed"),
    [
        (Account("a"), "1", "1"),
        (Account("a", "b", **document(1)), "2", "2"),
        (Account("a", "b", "a", **document(1)), "3", "1"),
        (Account("a", "b", "a", **document(2)), "3", "3"),
        (Account("a", "b", "a", **document(1, "lt-0")), "3", "3"),
        (Account("a", "b", "a", **document(1)), "4", "4"),
    ],
    ids=["the first", "another", "after a failure", "back on purpose", "another template", "not shown yet"],
)
def test_a_version_that_says_the_same_stays(account: Account, latest: str, deployed: str) -> None:
    """A failed deployment leaves one that was tried and one as before: neither is another version."""
    assert account.version(latest) == deployed


def event(kind: str, type_: str, **properties: str) -> dict[str, Any]:
    """What CloudFormation sends."""
    return {
        "RequestType": kind,
        "ResourceType": type_,
        "ResourceProperties": properties,
        **({} if kind == "Create" else {"PhysicalResourceId": OLD}),
    }


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What CloudFormation got: the physical ID, the reason of a failure, the data."""
    got: list[tuple[Any, ...]] = []

    def answer(_: object, physical_id: str, reason: str = "", data: dict[str, str] | None = None) -> None:
        got.append((physical_id, reason, data))

    monkeypatch.setattr(kept, "answer", answer)
    return got


@pytest.mark.parametrize(
    ("kind", "asked", "physical_id", "image"),
    [
        ("Create", "", NEW, NEW),
        ("Create", ASKED, NEW, ASKED),
        ("Update", "", OLD, OLD),
        ("Update", ASKED, OLD, ASKED),
        ("Delete", ASKED, OLD, ASKED),
    ],
)
def test_an_image_stays_until_another_is_asked_for(
    kind: str, asked: str, physical_id: str, image: str, answers: list[tuple[Any, ...]]
) -> None:
    """Its physical ID never changes, so what was before is there for a deployment that is taken back."""
    kept.handler(event(kind, IMAGE_RESOURCE, Newest=NEW, Asked=asked), cast("Any", None))
    assert answers == [(physical_id, "", {"ImageId": image})]


@pytest.mark.parametrize("is_denied", [False, True])
def test_cloudformation_hears_whatever_happens(
    is_denied: bool, answers: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that AWS refuses fails the deployment, with its words, and leaves the service as it is."""

    def version(*_: object) -> str:
        if is_denied:
            raise ClientError({"Error": {"Code": "UnauthorizedOperation"}}, "DescribeLaunchTemplateVersions")
        return "4"

    monkeypatch.setattr(kept, "version", version)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    update = event("Update", VERSION_RESOURCE, Service="chat", LaunchTemplateId="lt-1", Latest="5")
    kept.handler(update, cast("Any", None))
    kept.handler({**update, "RequestType": "Delete"}, cast("Any", None))
    (answered, over) = answers
    assert over == ("version-of-chat", "", {})
    if is_denied:
        assert answered[0] == "version-of-chat"
        assert "UnauthorizedOperation" in answered[1]
    else:
        assert answered == ("version-of-chat", "", {"Version": "4"})
