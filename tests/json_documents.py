"""The documented schemas of what commands print, as tests hold their output against them."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from lab.json_schemas import schema


@cache
def _validator(command: str) -> Draft202012Validator:
    # A log's record has facts of its own kind beside those that every record has.
    return Draft202012Validator(schema(command, is_strict=command != "logs"))


def check(command: str, document: Any) -> None:
    """Hold a document against its command's schema; it may not say more than that does."""
    _validator(command).validate(document)
