"""Answers that lack a part of what exists, and report success."""

from __future__ import annotations

from random import Random


class WrongAnswers:
    """Which part of an answer is missing, and until when."""

    def __init__(self) -> None:
        self.until = 0.0
        self.share = 0.0
        """The share of instances or targets that is shown."""
        self.seed = 0.0
        self.about_instances = False
        self.about_health = False

    def shows(self, instance_id: str, now: float) -> bool:
        """Whether the instance is shown: always the same ones."""
        if now >= self.until:
            return True
        return Random(f"{self.seed} {instance_id}").random() < self.share  # noqa: S311 - to be repeated
