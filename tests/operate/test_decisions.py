"""What the control plane logged, in sentences."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotrelay.operator.look.decisions import ACTIONS, SENTENCES, sentence
from spotrelay.plane.core.mending import FindingKind
from spotrelay.plane.serving import steps

ROOT = Path(__file__).resolve().parents[2]

NO_SERVICE = {"batch_failed", "ignored_event", "malformed_message", "not_set_aside", "queue_not_asked"}
"""Of messages that belong to none: `spotrelay logs NAME` doesn't show them."""


def _calls() -> Iterator[ast.Call]:
    for folder in ("spotrelay", "lambdas"):
        for file in (ROOT / folder).rglob("*.py"):
            yield from (
                node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Call)
            )


def _recorded() -> dict[str, set[str]]:
    """Each record's name in the code, and the facts that its calls name."""
    found: dict[str, set[str]] = {}
    for call in _calls():
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        at = {"record": 0, "note_failed": 1}.get(name)
        if at is not None and len(call.args) > at:
            facts = {one.arg or "" for one in call.keywords} if name == "record" else {"service"}
            for constant in ast.walk(call.args[at]):
                if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                    found.setdefault(constant.value, facts).intersection_update(facts)
    return found


def test_each_record_has_its_sentence() -> None:
    """Nothing is logged that only its programmer understands; and no sentence is left of what is gone."""
    of_surveys = {FindingKind.SURVEY_REFUSED, FindingKind.QUOTA_SHORT, FindingKind.IMAGE_GONE}
    recorded = set(_recorded()) | {"denied", "step_failed"} | of_surveys
    assert len(recorded) > 40
    assert recorded - NO_SERVICE == set(SENTENCES)


def test_each_record_of_a_service_names_it() -> None:
    """Or `spotrelay logs NAME` couldn't find it."""
    nameless = {name for name, facts in _recorded().items() if not {"service", ""} & facts}
    assert nameless <= NO_SERVICE


def test_each_step_has_its_words() -> None:
    """What is done to a replica is logged by the step's name."""
    source = Path(steps.__file__).read_text(encoding="utf-8")
    assert set(re.findall(r'\bStep\(\s*"(\w+)"', source)) - {"HoldBack"} == set(ACTIONS)


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (
            {
                "message": "Drain, Replace",
                "replica": 3,
                "instance_id": "i-3",
                "offering": "us-east-1a/g5.xlarge/spot",
                "reason": "interruption warning",
            },
            "replica 3: leaves the rotation and finishes its requests, a replacement is requested"
            " (interruption warning); i-3 in us-east-1a/g5.xlarge/spot",
        ),
        (
            {"message": "launch", "replicas": [4], "instances": {"i-4": "us-east-1b/g5.xlarge/spot"}},
            "launched for replica 4: i-4 (us-east-1b/g5.xlarge/spot)",
        ),
        (
            {
                "message": "launch",
                "replicas": [4, 5, 6, 7],
                "purchase_option": "spot",
                "instances": {},
                "refusals": ["InsufficientInstanceCapacity: us-east-1a/g5.xlarge/spot"],
            },
            "no instance for replicas 4, 5, 6 and 1 more, spot: EC2 refused:"
            " InsufficientInstanceCapacity: us-east-1a/g5.xlarge/spot",
        ),
        (
            {"message": "denied", "step": "register", "error": "not authorized"},
            "AWS denied a call (step register): not authorized",
        ),
        ({"message": "scaled", "before": 3, "count": 5}, "the load asks for 5 replicas instead of 3"),
        ({"message": "held_back", "what": "replica 3 is kept"}, "held back: replica 3 is kept, because ?; ?"),
        ({"message": "of_a_later_version", "why": "it can"}, "of a later version: it can"),
    ],
)
def test_a_record_in_words(record: dict[str, object], told: str) -> None:
    """One line, with the facts that matter."""
    assert sentence(record) == told


def test_a_record_of_any_kind_can_be_told() -> None:
    """Also one of another version, whose facts are missing: a log that can't be read helps nobody."""
    for name in (*SENTENCES, *ACTIONS, ""):
        assert "\n" not in sentence({"message": name, "error": "one\ntwo"})
