"""The faults that a test has asked for: calls that fail, answers that get lost or lie, callers that die."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

import psutil

from lab.local.thinning import ANSWERS, THINNED, Answer
from lab.local.wire import BOTOCORE_NAMES


@dataclass(slots=True)
class ApiFault:
    """What calls get: `delay_s` of waiting, and then an error, or death, or an answer that lacks something.

    It strikes the next `count` calls, or all of them for `for_s` seconds; those of `role` only, if that is
    given, and those `about` something. With `after` the call takes effect first, so that only its answer is
    lost.
    """

    action: str
    """As in "CreateFleet", or with the service and wildcards: "dynamodb:*"."""
    error_code: str = ""
    count: int = 1
    status: int = 400
    delay_s: float = 0.0
    role: str | None = None
    after: bool = False
    kill: bool = False
    """The calling function's process is killed, and gets no answer."""
    for_s: float | None = None
    answer: Answer = ""
    """What is left of the answer; see `lab.local.thinning`."""
    about: str = ""
    """Only calls whose parameters have this text, such as a service's name: of EC2 and load balancing."""

    def __post_init__(self) -> None:
        if self.kill and not self.role:
            raise ValueError("kill needs role: only a function's process can be killed, not the operator's")
        if self.after and not (self.kill or self.error_code):
            raise ValueError("after needs error_code or kill: what happens once the call has taken effect?")
        if self.answer not in ANSWERS:
            raise ValueError(f'answer: expected "empty" or "partial", not {self.answer!r}')
        if self.answer and self.breaks:
            raise ValueError("answer needs a call that succeeds: neither error_code nor kill")
        if self.answer and self.action.rpartition(":")[2] not in THINNED:
            raise ValueError(f"answer: {self.action} has none that can be thinned; {', '.join(THINNED)} have")

    @property
    def breaks(self) -> bool:
        """The caller never sees AWS's answer."""
        return self.kill or bool(self.error_code)

    def is_for(self, service: str, action: str, role: str, parameters: str) -> bool:
        """Whether it may strike this call."""
        name = f"{service}:{action}" if ":" in self.action else action
        return fnmatchcase(name, self.action) and self.role in (None, role) and self.about in parameters


class Faults:
    """The faults that are still to happen, in the order in which they were injected."""

    def __init__(self) -> None:
        self._faults: list[tuple[ApiFault, float]] = []
        self._denied: set[tuple[str, str]] = set()

    def inject(self, fault: ApiFault) -> None:
        """Let it happen, from now on."""
        end = float("inf") if fault.for_s is None else time.monotonic() + fault.for_s
        self._faults.append((fault, end))

    def deny(self, action: str, resource: str) -> None:
        """Have a service control policy deny `action`, as in "ec2:TerminateInstances", on a resource.

        It is named by its ARN or by the end of that, such as an instance's ID. It holds for the actions that
        we answer, on instances and targets; MiniStack's own don't ask.

        Raises:
            ValueError: it is an action of a service of which we answer none.
        """
        if action.partition(":")[0] not in BOTOCORE_NAMES:
            raise ValueError(f"{action}: actions that can be denied begin with {', '.join(BOTOCORE_NAMES)}")
        self._denied.add((action, resource))

    def is_denied(self, action: str, resource: str) -> bool:
        """Whether such a policy denies it."""
        return any(
            action == denied and (resource == name or resource.endswith(f"/{name}"))
            for denied, name in self._denied
        )

    def clear(self, about: str | None = None) -> None:
        """Forget them all, and what is denied; or only those that are `about` this."""
        self._faults = [] if about is None else [one for one in self._faults if one[0].about != about]
        if about is None:
            self._denied.clear()

    def pending(self) -> list[dict[str, Any]]:
        """Those that are still to happen, or still happen."""
        self._drop_ended()
        return [asdict(fault) for fault, _ in self._faults]

    def take(self, service: str, action: str, role: str, parameters: str = "") -> ApiFault | None:
        """The fault for a call, used up once."""
        self._drop_ended()
        for entry in self._faults:
            fault, _ = entry
            if fault.is_for(service, action, role, parameters):
                if fault.for_s is None:
                    fault.count -= 1
                    if fault.count <= 0:
                        self._faults.remove(entry)
                return fault
        return None

    def _drop_ended(self) -> None:
        now = time.monotonic()
        self._faults = [(fault, end) for fault, end in self._faults if now < end]


def kill_caller(address: tuple[str, int]) -> bool:
    """SIGKILL the process below this one whose end of a connection is `address`; False if there is none."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any(c.laddr == address for c in child.net_connections("tcp")):
                child.kill()
                return True
    return False
