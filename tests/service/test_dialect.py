"""Two dialects and one form: what a file means, whichever words it uses, and where a message finds it."""

from __future__ import annotations

import pytest

from spotrelay.file.dialects.dialect import (
    RESOURCES_ADDITIONS,
    SERVICE_ADDITIONS,
    Dialect,
    canonical,
    dialect_of,
)
from spotrelay.file.source.document import Document

from .conftest import GOOD, Loader, Refuser


@pytest.mark.parametrize(
    "values",
    [
        {"spotrelay": None},
        {"spotrelay": {}},
        *({"service": {name: 1}} for name in SERVICE_ADDITIONS),
        *({"resources": {name: 1}} for name in RESOURCES_ADDITIONS),
        {"secrets": {"TOKEN": "/spotrelay/chat/token"}},
    ],
)
def test_a_word_of_ours_makes_a_file_ours(values: dict[str, object]) -> None:
    """The section, even an empty one, an older field of ours or a secret's parameter tells the dialect."""
    assert dialect_of(values) is Dialect.SPOTRELAY


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"service": None, "resources": [], "secrets": 3},
        {"service": {"replicas": 2}, "resources": {"use_spot": True}},
        {"secrets": {"TOKEN": None, "OTHER": "abc", "PATH": "/", "TAIL": "/abc+d="}},
    ],
)
def test_every_other_file_is_in_skyserves_words(values: dict[str, object]) -> None:
    """Also one whose sections hold what they can't."""
    assert dialect_of(values) is Dialect.SKYSERVE


@pytest.mark.parametrize("name", SERVICE_ADDITIONS)
def test_an_addition_to_the_service_moves_to_our_section(name: str) -> None:
    """Its older place means the same, and is remembered."""
    found = canonical(Document("f", {"service": {name: 1}}, {})).document
    assert (found.values["service"], found.values["spotrelay"]) == ({}, {name: 1})
    assert found.in_file(("spotrelay", name, 0)) == ("service", name, 0)


@pytest.mark.parametrize("name", RESOURCES_ADDITIONS)
def test_an_addition_to_the_resources_is_read_with_them(name: str) -> None:
    """Our section is its place in the file, and the other one in the form that is validated."""
    found = canonical(Document("f", {"spotrelay": {name: 1}}, {})).document
    assert (found.values["spotrelay"], found.values["resources"]) == ({}, {name: 1})
    assert found.in_file(("resources", name, 0)) == ("spotrelay", name, 0)
    older = canonical(Document("f", {"resources": {name: 1}}, {})).document
    assert older.values["resources"] == {name: 1}
    assert older.in_file(("resources", name)) == ("resources", name)


def test_both_places_give_the_same_service(service: Loader) -> None:
    """A file of yesterday and one with the section say the same."""
    older = service(
        GOOD.replace("replicas: 2", "replicas: 2\n  drain_seconds: 20\n  on_demand_fallback: false").replace(
            "ports:", "exclude: [g5]\n  zones: [us-east-1a]\n  ports:"
        )
    )
    newer = service(
        GOOD + "spotrelay: {drain_seconds: 20, on_demand_fallback: false, exclude: [g5], zones: [us-east-1a]}"
    )
    assert (newer.drain_s, newer.on_demand_fallback) == (20, False)
    assert newer.requirements == older.requirements
    assert newer.drain_s == older.drain_s


def test_one_field_at_both_places_is_an_error_that_names_both(problems: Refuser) -> None:
    """Whichever of the two is meant, it isn't guessed."""
    text = GOOD.replace("ports:", "exclude: [g5]\n  ports:") + "spotrelay:\n  surge: 2\n  exclude: [g6]\n"
    assert [str(p) for p in problems(text)] == [
        "chat.yaml:3:3: service.surge: says the same as spotrelay.surge, which is here, too: "
        "remove one of the two",
        "chat.yaml:11:3: spotrelay.exclude: says the same as resources.exclude, which is here, too: "
        "remove one of the two",
    ]


def test_a_message_names_the_users_own_field_line_and_column(problems: Refuser) -> None:
    """At either place; and a field that isn't written by the place where it should be."""
    assert [
        str(p) for p in problems(GOOD + "spotrelay: {drain_seconds: 0, instance_types: [g5.xlarge, x]}")
    ] == [
        "chat.yaml:8:13: spotrelay.drain_seconds: expected whole seconds from 1 to 600, got 0",
        "chat.yaml:8:59: spotrelay.instance_types[1]: 'x' is no known instance type",
    ]
    (problem,) = problems(GOOD.replace("{A10G, L4, L40S}", "Inferentia2"))
    assert problem.message.endswith("name an image that suits it in spotrelay.image")
