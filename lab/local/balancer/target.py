"""A registered target: its health as the ALB sees it, and what it is serving. No clock, no network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from lab.local.balancer.config import HealthCheck


class State(StrEnum):
    """Target states of DescribeTargetHealth."""

    INITIAL = "initial"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    DRAINING = "draining"
    UNUSED = "unused"


@dataclass(frozen=True, slots=True)
class Health:
    """A state with the reason code and the sentence that DescribeTargetHealth gives beside it."""

    state: State
    reason: str | None = None
    description: str | None = None


HEALTHY = Health(State.HEALTHY)
REGISTERING = Health(State.INITIAL, "Elb.RegistrationInProgress", "Target registration is in progress")
CHECKING = Health(State.INITIAL, "Elb.InitialHealthChecking", "Initial health checks in progress")
DRAINING = Health(State.DRAINING, "Target.DeregistrationInProgress", "Target deregistration is in progress")
NOT_REGISTERED = Health(State.UNUSED, "Target.NotRegistered", "Target is not registered to the target group")
NOT_IN_USE = Health(
    State.UNUSED,
    "Target.NotInUse",
    "Target group is not configured to receive traffic from the load balancer",
)
ZONE_NOT_ENABLED = Health(
    State.UNUSED,
    "Target.NotInUse",
    "Target is in an Availability Zone that is not enabled for the load balancer",
)
NOT_RUNNING = Health(State.UNUSED, "Target.InvalidState", "Target is in the stopped or terminated state")


@dataclass(frozen=True, slots=True)
class CheckFailure:
    """Why a health check failed, in AWS's reason codes."""

    reason: str
    description: str


# Compared and hashed by identity: two requests of the same moment are two requests.
@dataclass(slots=True, eq=False)
class LoggedRequest:
    """One request in a load balancer's log. Times are epoch seconds.

    `status`: what the client got; 0 while it has got nothing. `answered`: when the target's response headers
    came. `cut`: the response began and was broken off, by the target or by the end of the deregistration
    delay. `draining_since`: when the target started draining, if that was before the request ended. `error`:
    what went wrong, for people.
    """

    target: str | None
    started: float
    answered: float | None = None
    ended: float | None = None
    status: int = 0
    cut: bool = False
    draining_since: float | None = None
    error: str | None = None


@dataclass(slots=True, eq=False)
class Target:
    """A target of one group. A newly registered one is healthy after the first check it passes."""

    id: str
    port: int
    health: Health = REGISTERING
    last_used: int = 0
    # Each with what breaks it off when the deregistration delay is over.
    in_flight: dict[LoggedRequest, Callable[[], object]] = field(default_factory=dict)
    _passed: int = 0
    _failed: int = 0

    @property
    def is_routable(self) -> bool:
        """Whether it gets requests when no target is healthy: the ALB then fails open to all registered."""
        return self.health.state in {State.INITIAL, State.HEALTHY, State.UNHEALTHY}

    def restart(self, health: Health) -> None:
        """Forgets what the checks have said and starts again at `health`."""
        self.health = health
        self._passed = self._failed = 0

    def drain(self, now: float) -> None:
        """Takes it out of rotation; what it is serving goes on. `now` is in epoch seconds."""
        self.health = DRAINING
        for request in self.in_flight:
            request.draining_since = now

    def break_off(self) -> None:
        """Ends whatever it is serving."""
        for cancel in list(self.in_flight.values()):
            cancel()

    def judge(self, failure: CheckFailure | None, check: HealthCheck) -> None:
        """Takes in the result of a health check: None if it passed."""
        state = self.health.state
        if state is State.DRAINING:
            return
        if failure is None:
            self._passed, self._failed = self._passed + 1, 0
            if state is State.INITIAL or self._passed >= check.healthy_threshold:
                self.health = HEALTHY
        else:
            self._passed, self._failed = 0, self._failed + 1
            if self._failed >= check.unhealthy_threshold:
                self.health = Health(State.UNHEALTHY, failure.reason, failure.description)
            elif state is State.INITIAL:
                self.health = CHECKING
