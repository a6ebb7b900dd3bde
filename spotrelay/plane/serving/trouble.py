"""Replicas that start, and tell why they aren't ready: for who looks, and for the alarm of a crash loop."""

from __future__ import annotations

from collections.abc import Iterable

from spotrelay.plane.core.answers import Answers
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.serving import steps
from spotrelay.plane.serving.steps import Step


def told(starting: Iterable[Replica], answers: Answers) -> list[Step]:
    """Note what has changed of that. Who says nothing is as it was: a server that ended is started again."""
    noted = (
        steps.note_trouble(r, answers.trouble.get(r.instance_id or ""))
        for r in starting
        if r.instance_id in answers.trouble or r.instance_id in answers.answering
    )
    return [note for note in noted if note.after != note.before]
