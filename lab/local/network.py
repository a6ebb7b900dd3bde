"""The networks that instances are in.

On EC2 each instance has a network of its own. So it is here where the machine allows it: each is in a Linux
network namespace, and a bridge in one more namespace, the switch, joins them with each other and with this
machine. No namespace has a name: the kernel removes it, with every interface in it, once nothing holds it
any more. So nothing is left, however the local cloud ends.

The addresses are of 198.18.0.0/15, which RFC 2544 reserves for tests: no network that somebody uses has them.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import cycle
from pathlib import Path
from typing import Protocol

_PREFIX = 20
_SUBNETS = tuple(IPv4Network("198.18.0.0/15").subnets(new_prefix=_PREFIX))
"""One for each local cloud of a machine, with room for 4093 instances at a time."""

_DEVICE = "spotrelay"
"""How the names of this machine's devices begin; the number of the subnet follows."""

_MTU = 9001
"""Of an instance's interface, as on EC2."""

_CLONE_NEWNET = 0x40000000  # from <linux/sched.h>

_TOOLS = ("ip", "tc", "nsenter", "unshare")

_QUEUE_S = 0.2
"""How long a packet may wait where the rate is limited, before the sender has to slow down."""

_BURST_S = 0.01

_LATENCY = Path(__file__).with_name("latency.py")

_JOIN = f"""
"$5" --net=/proc/self/fd/$1 "$6" -batch - <<END || exit
link add $2 mtu {_MTU} type veth peer name eth0 mtu {_MTU} address $3 netns $$
link set $2 master switch up
END
"$6" -batch - <<END || exit
link set lo up
address add $4/{_PREFIX} broadcast + dev eth0
link set eth0 up
END
eval "exec $1>&-"
exec "${{@:7}}"
"""
"""Run in the instance's new namespace: puts it on the switch, and then runs what the instance runs."""

OWN = "each instance has a network of its own"
SHARED = (
    "all instances share this machine's network ({why}). What can't be told apart: a server that listens on"
    " 0.0.0.0 answers at every instance's address, so a replica may look ready while its own server is down."
    " An instance that boots or has ended refuses connections, where on EC2 they hang. And no instance can be"
    " given a rate or a latency. {remedy}"
)
REMEDY = "For networks of their own: Linux with iproute2 and util-linux, as root or inside `unshare -Urn`."
ASKED_FOR = "as was asked for"


class NetworkError(RuntimeError):
    """This machine doesn't allow it; the text says what, and why."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How slow an instance's network is; without arguments it is as fast as the machine is."""

    rate_mbit: float | None = None
    """Megabits per second that it receives, and as many that it sends; None: no limit."""
    latency_s: float = 0.0
    """By how much each packet that it sends comes later, and so the answer to each that it receives."""

    def __post_init__(self) -> None:
        if self.rate_mbit is not None and not 0 < self.rate_mbit < float("inf"):
            raise ValueError(f"rate_mbit={self.rate_mbit}: expected megabits per second above 0")
        if not 0 <= self.latency_s < float("inf"):
            raise ValueError(f"latency_s={self.latency_s}: expected seconds, 0 or more")


class Network(Protocol):
    """Gives instances their addresses and, perhaps, networks of their own."""

    @property
    def gateway(self) -> Gateway | None:
        """Where instances reach this machine; None: at its own loopback address."""

    @property
    def words(self) -> str:
        """What can be relied on, and what can't, as a sentence for people."""

    def new_address(self) -> str:
        """An address that no instance has."""

    def start(
        self, address: str, command: Sequence[str], env: Mapping[str, str], log: int, cwd: Path
    ) -> subprocess.Popen[bytes]:
        """Runs an instance's first process, with a pipe as its standard input, as leader of a session."""

    def shape(self, pid: int, address: str, shape: Shape) -> bool:
        """Makes the network of a running instance so slow; False: it isn't on its network yet.

        Raises:
            NetworkError: this machine can't.
        """

    def close(self) -> None:
        """Lets go of it. What instances still run keeps theirs."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """This machine's own place in the instances' network."""

    address: str
    device: str

    def bind(self, port: int) -> socket.socket:
        """A socket that only instances reach."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self.device.encode())
        listener.bind((self.address, port))
        return listener


def choose(wanted: str | None = None) -> Network:
    """Networks of their own for the instances if the machine allows it; `wanted` is "own" or "shared".

    Raises:
        NetworkError: they must be their own, and the machine doesn't allow it.
    """
    if wanted == "shared":
        return SharedNetwork(ASKED_FOR)
    try:
        return OwnNetworks()
    except NetworkError as error:
        if wanted == "own":
            raise
        return SharedNetwork(str(error), REMEDY)


class SharedNetwork:
    """All instances are in this machine's network, each with a loopback address that it should listen on.

    The second and third number are drawn once, so that two local clouds on one machine don't get in each
    other's way; below 127.10 lives what others put on loopback.
    """

    gateway: Gateway | None = None

    def __init__(self, why: str = ASKED_FOR, remedy: str = "") -> None:
        self.words = SHARED.format(why=why, remedy=remedy).rstrip()
        self._why = why
        self._next = (10 + secrets.randbelow(240)) * 2**16 + secrets.randbelow(2**8) * 2**8

    def new_address(self) -> str:
        """Never given twice."""
        self._next += 1
        if self._next % 2**8 in (0, 255):  # no network or broadcast address, for the reader's sake
            return self.new_address()
        second, rest = divmod(self._next, 2**16)
        return f"127.{second}.{rest // 2**8}.{rest % 2**8}"

    def start(
        self, address: str, command: Sequence[str], env: Mapping[str, str], log: int, cwd: Path
    ) -> subprocess.Popen[bytes]:
        """Where everything else runs, too."""
        del address
        return _start(command, env, log, cwd)

    def shape(self, pid: int, address: str, shape: Shape) -> bool:  # noqa: ARG002 - a Network's
        """Never."""
        raise NetworkError(f"all instances share this machine's network ({self._why}): it isn't slowed down")

    def close(self) -> None:
        """Nothing is held."""


@dataclass(slots=True)
class _Port:
    """Where an instance is plugged into the switch."""

    name: str
    latency: subprocess.Popen[bytes] | None = None


class OwnNetworks:
    """Each instance is in a network namespace of its own.

    Raises NetworkError if this machine doesn't allow it.
    """

    words = OWN

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise NetworkError("it isn't Linux")
        self._tools = _tools()
        self._ports: dict[str, _Port] = {}
        self._plugged = 0
        with ThreadPoolExecutor(1) as thread:  # whose namespace changes, and nobody else's
            self._switch = thread.submit(_new_namespace).result()
        try:
            self._subnet, device = self._plug_in()
            hosts = map(str, self._subnet.hosts())
            self._gateway = Gateway(next(hosts), device)
            self._addresses = cycle(hosts)
            here = f"address add {self._gateway.address}/{_PREFIX} dev {device}\nlink set {device} up\n"
            _run([self._tools["ip"], "-batch", "-"], here)
        except BaseException:
            os.close(self._switch)
            raise

    @property
    def gateway(self) -> Gateway | None:
        """This machine's end of the cable to the switch."""
        return self._gateway

    def new_address(self) -> str:
        """Not given again before four thousand others were.

        Whether an instance is there isn't asked: packets to one that boots or has ended are lost, as on EC2.
        """
        address = next(self._addresses)
        neighbour = ["lladdr", _hardware(address), "dev", self._gateway.device, "nud", "permanent"]
        _run([self._tools["ip"], "neigh", "replace", address, *neighbour])
        return address

    def start(
        self, address: str, command: Sequence[str], env: Mapping[str, str], log: int, cwd: Path
    ) -> subprocess.Popen[bytes]:
        """In a new namespace, which ends with the last process of the instance.

        One that is started again has its address, and so its hardware address, as before.
        """
        self._plugged += 1
        port = self._ports[address] = _Port(f"port{self._plugged}")
        tools = self._tools["nsenter"], self._tools["ip"]
        join = [
            "bash",
            "-c",
            _JOIN,
            "join",
            str(self._switch),
            port.name,
            _hardware(address),
            address,
            *tools,
        ]
        return _start([self._tools["unshare"], "--net", *join, *command], env, log, cwd, (self._switch,))

    def shape(self, pid: int, address: str, shape: Shape) -> bool:
        """By a token bucket at each end of its cable, and a process that holds back what it sends."""
        port = self._ports[address]
        own = Path(f"/proc/{pid}/ns/net")
        # Until it is in a namespace of its own, its eth0 would be this machine's.
        with suppress(FileNotFoundError):
            if own.samefile("/proc/self/ns/net") or not self._has(port):
                return False
        self._in(self._switch_path, "tc", *_queue(port.name, shape))
        self._in(str(own), "tc", *_queue("eth0", shape))
        if port.latency is not None:
            port.latency.kill()
            port.latency.wait()
            port.latency = None
        if shape.latency_s:
            port.latency = self._delay(pid, address, shape.latency_s)
        return True

    def close(self) -> None:
        """The switch ends with the last instance."""
        os.close(self._switch)
        for port in self._ports.values():
            if port.latency is not None:
                port.latency.kill()
                port.latency.wait()

    @property
    def _switch_path(self) -> str:
        return f"/proc/self/fd/{self._switch}"

    def _plug_in(self) -> tuple[IPv4Network, str]:
        """Connects the switch with this machine; its subnet, and the name of the device here.

        That name is a lock: nobody else has the subnet as long as the device is there.
        """
        first = secrets.randbelow(len(_SUBNETS))
        for number in (*range(first, len(_SUBNETS)), *range(first)):
            device = f"{_DEVICE}{number}"
            cable = f"uplink mtu {_MTU} type veth peer name {device} mtu {_MTU} netns {os.getpid()}"
            try:
                self._on_switch(f"link add {cable}")
            except NetworkError as error:
                if "exists" not in str(error):
                    raise
            else:
                self._on_switch(
                    "link add switch type bridge", "link set uplink master switch up", "link set switch up"
                )
                return _SUBNETS[number], device
        raise NetworkError(f"all {len(_SUBNETS)} subnets are taken by other local clouds")

    def _on_switch(self, *lines: str) -> None:
        self._in(self._switch_path, "ip", "-batch", "-", given="\n".join((*lines, "")))

    def _has(self, port: _Port) -> bool:
        with suppress(NetworkError):
            return bool(self._in(self._switch_path, "ip", "link", "show", "dev", port.name))
        return False

    def _delay(self, pid: int, address: str, latency_s: float) -> subprocess.Popen[bytes]:
        halves = [str(half) for half in self._subnet.subnets()]
        command = [
            self._tools["nsenter"], f"--net=/proc/{pid}/ns/net",
            sys.executable, "-I", str(_LATENCY), self._tools["ip"],
            str(pid), f"{latency_s:g}", str(_MTU), address, *halves,
        ]  # fmt: skip
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 - pipes
        if not process.stdout.readline():
            why = process.stderr.read().decode().strip().rpartition("\n")[2]
            process.wait()
            raise NetworkError(f"no latency on this machine: {why}")
        return process

    def _in(self, namespace: str, tool: str, *arguments: str, given: str = "") -> str:
        command = [self._tools["nsenter"], f"--net={namespace}", self._tools[tool], *arguments]
        return _run(command, given, (self._switch,))


def _hardware(address: str) -> str:
    """The hardware address of the instance that has this one."""
    return "02:00:" + ":".join(f"{int(number):02x}" for number in address.split("."))


def _tools() -> dict[str, str]:
    # Where Debian has two of them, which isn't on everybody's path.
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    found = {tool: shutil.which(tool, path=path) for tool in _TOOLS}
    if missing := [tool for tool, at in found.items() if at is None]:
        raise NetworkError(f"there is no command {' and no '.join(missing)}")
    return {tool: at for tool, at in found.items() if at is not None}


def _new_namespace() -> int:
    """A file that holds a new network namespace. The calling thread stays in it."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise NetworkError(f"no new network namespace: {os.strerror(ctypes.get_errno())}")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


def _queue(device: str, shape: Shape) -> list[str]:
    """What `tc` is told."""
    replace = ["qdisc", "replace", "dev", device, "root"]
    if shape.rate_mbit is None:
        return [*replace, "noqueue"]
    burst = max(2 * _MTU, int(shape.rate_mbit * 1e6 / 8 * _BURST_S))
    rate = f"{shape.rate_mbit * 1e6:.0f}bit"
    return [*replace, "tbf", "rate", rate, "burst", str(burst), "latency", f"{_QUEUE_S * 1000:.0f}ms"]


def _run(command: Sequence[str], given: str = "", files: Sequence[int] = ()) -> str:
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, pass_fds=tuple(files)
    )
    if done.returncode:
        raise NetworkError(f"{Path(command[0]).name}: {done.stderr.strip().partition(chr(10))[0]}")
    return done.stdout


def _start(
    command: Sequence[str], env: Mapping[str, str], log: int, cwd: Path, files: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.PIPE,  # never written to; see machine_init
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=tuple(files),
    )
