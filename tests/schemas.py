"""The published JSON Schemas of our own events, as tests hold events against them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from spotrelay.plane.core.notices import Notice, NoticeKind


def schema_of(kind: NoticeKind) -> dict[str, Any]:
    """The schema of a kind's detail, as the package ships it."""
    text = (
        files("spotrelay.plane.events").joinpath("schemas", f"{kind.value}.json").read_text(encoding="utf-8")
    )
    schema: dict[str, Any] = json.loads(text)
    return schema


VALIDATORS = {kind: Draft202012Validator(schema_of(kind)) for kind in NoticeKind}


def check(notices: Iterable[Notice]) -> None:
    """Hold the details, as they are sent, against their schemas; none may say more than its schema does."""
    for notice in notices:
        detail = json.loads(json.dumps(notice.detail))
        VALIDATORS[notice.kind].validate(detail)
        assert detail.keys() == schema_of(notice.kind)["properties"].keys(), notice.id
