"""What a service file says of how a replica proves that it is busy."""

from __future__ import annotations

from pydantic import Field

from spotrelay.file.fields.scaling import MAX_ONGOING_METRICS, METRICS_PATH, VLLM_METRICS, MetricNames
from spotrelay.file.values.candidate import Fields
from spotrelay.plane.core.answers import BusyEvidence

_METRICS = f"a list of 1 to {MAX_ONGOING_METRICS} names of the server's metrics, without labels"


class BusySection(Fields):
    """What a replica that doesn't answer its probe must show, not to be replaced."""

    limit: int = Field(ge=1, le=100_000, description="a whole number from 1 to 100000")
    # Tokens, not requests: they rise while the engine works, however long an answer is.
    finished: MetricNames = Field(
        default_factory=lambda: ["vllm:generation_tokens_total"],
        min_length=1,
        max_length=MAX_ONGOING_METRICS,
        description=_METRICS,
    )
    ongoing: MetricNames = Field(
        default_factory=lambda: [*VLLM_METRICS],
        min_length=1,
        max_length=MAX_ONGOING_METRICS,
        description=_METRICS,
    )
    path: str = METRICS_PATH
    longest_seconds: int = Field(default=1800, ge=60, le=86_400, description="whole seconds from 60 to 86400")

    @property
    def compiled(self) -> BusyEvidence:
        """As the controller reads it."""
        return BusyEvidence(
            limit=self.limit,
            # One that is named twice would count twice.
            finished=tuple(dict.fromkeys(self.finished)),
            ongoing=tuple(dict.fromkeys(self.ongoing)),
            path=self.path,
            longest_s=self.longest_seconds,
        )
