"""What can be chosen about a demo, and where it puts things."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.demo.errors import DemoError
from lab.local.environment import EC2_WARNING_S
from lab.local.machine_init import OWN_DISK
from lab.local.machines import give_own_disks
from spotrelay.file.service import ServiceFileError, load

ROOT = Path(__file__).resolve().parents[2]
"""The working copy: the demo deploys the app that is in it."""

EC2_SCHEDULE_S = 60.0
"""How long a minute is on AWS. The demo shortens it in the same ratio as a warning."""

DEFAULT_WARNING_S = 30.0
"""When everything is taken at once, the last replica serves until ten seconds before its end: so 20 s, three
times what a replacement takes (some 6 s), for machines that are busy otherwise."""

SHORTEST_WARNING_S = 10.0
"""A lost event is found half a warning later, and a request takes 2.5 s: less would cut requests, rightly.
With so little nobody can serve on, and requests fail when everything is taken at once."""

LONGEST_WARNING_S = 600.0
"""Nobody waits longer for a demo."""

SERVICE_FILE = Path("services/demo.yaml")

SECOND_SERVICE_FILE = Path("services/demo-2.yaml")
"""No pool is both's, so the market can do something to one service while it does something to the other."""

MODEL = "spotrelay-demo"
"""What the load asks for, as in the service files."""

SERVER, ENGINE = "lab.demo.chat_server", "lab.engine.server"
"""The only servers that the demo's load talks to. Whatever else a file runs would run on this machine."""

ENGINE_TOKENS, ENGINE_PAUSE_S = 50, 2.5
"""What a client asks of the real engine, and how long it then waits: as much and as often as the other
server lets it. The engine answers in hundredths of a second: without a pause, its clients would keep both
processors busy. They ask for whole answers, because it closes each connection after a stream, unannounced
(tests/engine): now and then a load balancer meets one that is just being closed, and a client gets 502."""

CONCURRENCY = 20
"""Streaming requests at once, all the time, as many to each service."""

ACCOUNT, REGION = "000000000000", "us-east-1"
"""Of the local cloud."""


@dataclass(frozen=True, slots=True)
class ShownService:
    """A service that the user wants to see."""

    file: Path
    name: str
    is_engine: bool = False
    """Whether it runs the real engine."""
    has_pack: bool = False
    """Whether its set-up is to be packed before the stories."""


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """One demo. `warning_s`: from the warning until EC2 takes the instance."""

    warning_s: float = DEFAULT_WARNING_S
    out: Path = ROOT / "out" / "demo"
    service: ShownService | None = None
    """What happens to it is told one story after the other; None: of the demo's own two services."""
    is_shown: bool = False
    """Whether the local page is opened while the stories are told."""
    is_kept: bool = False
    """Whether the local cloud stays up for whoever wants to try things, instead of telling stories."""

    @property
    def schedule_s(self) -> float:
        """How long a `rate(1 minute)` schedule lasts."""
        return EC2_SCHEDULE_S * self.warning_s / EC2_WARNING_S

    @property
    def logs(self) -> Path:
        """Directory for everything that processes say."""
        return self.out / "logs"


def warning_s_of(text: str) -> float:
    """The duration of a warning that a user asked for.

    Raises:
        DemoError: not a number, or out of the range that a demo makes sense in.
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not SHORTEST_WARNING_S <= value <= LONGEST_WARNING_S:
        raise DemoError(
            f"WARNING_S={text}: expected seconds, {SHORTEST_WARNING_S:.0f} to {LONGEST_WARNING_S:.0f};"
            f" EC2's own warning is make demo WARNING_S={EC2_WARNING_S:.0f}"
        )
    return value


def service_of(text: str) -> ShownService:
    """The service that a user asked for, by the path of its file.

    Raises:
        DemoError: there is no such file, it is no service file, or one that runs something else than the
            demo's server.
    """
    file = Path(text).resolve()
    if not file.is_file():
        raise DemoError(f"SERVICE={text}: there is no such file; services/slow-start.yaml is one")
    try:
        service = load(file)
    except ServiceFileError as error:
        raise DemoError(f"SERVICE={text}: {error}") from None
    is_engine = ENGINE in service.run
    if not (is_engine or SERVER in service.run) or service.envs.get("MODEL_NAME") != MODEL:
        raise DemoError(
            f"SERVICE={text}: the demo can only talk to its own servers: run must start {SERVER} or {ENGINE},"
            f" and envs.MODEL_NAME be {MODEL}; see {SERVICE_FILE}"
        )
    if service.pack is not None and not give_own_disks():
        raise DemoError(
            f"SERVICE={text}: instances that unpack need a {OWN_DISK} of their own, which this machine"
            " doesn't give them: run the demo as root, or inside `unshare -Urn`"
        )
    return ShownService(file, service.name, is_engine, service.pack is not None)
