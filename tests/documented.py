"""Policies that pages of docs/ give, filled in as they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab.local.environment import ACCOUNT, REGION

DOCS = Path(__file__).parents[1] / "docs"


def policy(page: str, table: str, tick_queue_arn: str = "") -> list[dict[str, Any]]:
    """The statements of a page's only policy."""
    (named,) = (part.partition("```")[0] for part in (DOCS / page).read_text("utf-8").split("```json")[1:])
    for text, value in (
        ("the output TableName of SpotRelay-ControlPlane", table),
        ("the queue whose URL is the output TickQueueUrl of SpotRelay-ControlPlane", tick_queue_arn),
        ("REGION", REGION),
        ("ACCOUNT", ACCOUNT),
    ):
        named = named.replace(text, value)
    statements: list[dict[str, Any]] = json.loads(named)
    return statements
