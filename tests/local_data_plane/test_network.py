"""The networks of instances: what a shared one can't tell apart, and what networks of their own do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path
from urllib.request import urlopen

import pytest

from lab.local import network
from lab.local.machines import Machines
from lab.local.network import NetworkError, OwnNetworks, Shape, SharedNetwork
from tests.local_data_plane.support import wait_until
from tests.local_data_plane.test_machines import user_data

PORT = 8081
EVERYWHERE = f"echo $HOST > here; exec python -m http.server --bind 0.0.0.0 {PORT}"
CRASHES = "echo started; exit 1"


@pytest.fixture
def networks() -> OwnNetworks:
    """Those that the machine allows. In continuous integration it is a failure if it allows none."""
    try:
        return OwnNetworks()
    except NetworkError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture
def own(networks: OwnNetworks, tmp_path: Path) -> Iterator[Machines]:
    """Instances with networks of their own."""
    room = Machines(tmp_path / "own", network=networks)
    yield room
    room.stop_all()


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Machines]:
    """Instances in this machine's network."""
    room = Machines(tmp_path / "shared", network=SharedNetwork())
    yield room
    room.stop_all()


def get(address: str, path: str = "here") -> str:
    """What answers there; nothing if nothing does."""
    try:
        with urlopen(f"http://{address}:{PORT}/{path}", timeout=5) as answer:
            return str(answer.read().decode().strip())
    except OSError:
        return ""


def boot(machines: Machines, instance_id: str, run: str) -> str:
    """The address of a new instance."""
    address = machines.new_address()
    machines.start(instance_id, address, user_data(run))
    return address


def serving(machines: Machines, instance_id: str, run: str = EVERYWHERE) -> str:
    """The address of a new instance that answers."""
    address = boot(machines, instance_id, run)
    wait_until(lambda: get(address), f"{instance_id} answers")
    return address


def crashed(machines: Machines, instance_id: str) -> str:
    """The address of a new instance whose server has ended."""
    address = boot(machines, instance_id, CRASHES)
    wait_until(lambda: "started" in machines.log_path(instance_id).read_text(), "its server has ended")
    return address


def test_on_a_shared_network_one_answers_for_another(shared: Machines) -> None:
    """What can't be told apart there: at the address of an instance that crashes another answers."""
    serves, crashes = serving(shared, "i-1"), crashed(shared, "i-2")
    assert get(crashes) == serves


def test_on_networks_of_their_own_each_answers_for_itself(own: Machines) -> None:
    """An instance whose server has crashed refuses, though another's listens on all addresses."""
    serves, crashes = serving(own, "i-1"), crashed(own, "i-2")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((crashes, PORT), 5)
    assert get(serves) == serves


def test_who_boots_and_who_has_ended_is_silent(own: Machines) -> None:
    """As on EC2, packets to it are lost: a connection is neither made nor refused, and hangs."""
    address = own.new_address()
    assert is_silent(address)
    own.start("i-1", address, user_data(EVERYWHERE))
    wait_until(lambda: get(address), "it answers")
    own.stop("i-1")
    # As a machine that shuts down it may refuse for a moment: its server goes before its network.
    wait_until(lambda: is_silent(address), "it has ended")


def is_silent(address: str) -> bool:
    """Whether a connection isn't decided in longer than a neighbour is looked for, which is three seconds."""
    try:
        socket.create_connection((address, PORT), 4).close()
    except OSError as error:
        return isinstance(error, TimeoutError)
    return False


ASK = """
import sys, urllib.request
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url).read().decode())
    except OSError:
        print("none")
"""


def test_instances_reach_each_other_and_not_each_other_s_loopback(own: Machines, tmp_path: Path) -> None:
    """A peer is reached at its address, as models are fetched from peers; 127.0.0.1 is one's own."""
    serves, out = serving(own, "i-1"), tmp_path / "out"
    ask = f"python -c '{ASK}' http://{serves}:{PORT}/here http://127.0.0.1:{PORT}/here"
    boot(own, "i-2", f"{ask} > {out}.new; mv {out}.new {out}; sleep 1000")
    wait_until(out.exists, "it has asked")
    assert out.read_text().split() == [serves, "none"]


def test_an_instance_that_is_started_again_is_reached_as_before(own: Machines) -> None:
    """Its hardware address is the same, too: nobody goes on sending to where it was."""
    run = f"PATH=$PATH:/usr/sbin ip -br link show eth0 | cut -c 30- > here; exec python -m http.server {PORT}"
    address = serving(own, "i-1", run)
    before = get(address)
    own.halt("i-1")
    wait_until(lambda: not get(address), "it is halted")
    own.start("i-1", address, user_data(run))
    wait_until(lambda: get(address), "it answers again")
    assert get(address) == before
    assert before.startswith("02:00:")


PARENT = """
import sys, time
from pathlib import Path
from lab.local.machines import Machines
from lab.local.network import OwnNetworks
machines = Machines(Path(sys.argv[1]), network=OwnNetworks())
machines.start("i-1", machines.new_address(), sys.stdin.read())
print(machines._network.gateway.device, flush=True)
time.sleep(1000)
"""


def test_nothing_is_left_of_a_network_whose_cloud_was_killed(own: Machines, tmp_path: Path) -> None:
    """SIGKILLed, it leaves no device behind; another's network is another one, and stays."""
    serves = serving(own, "i-1")
    command = [sys.executable, "-c", PARENT, str(tmp_path / "machines")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write(user_data(EVERYWHERE))
        parent.stdin.close()
        device = parent.stdout.readline().strip()
        assert device in dict(socket.if_nameindex()).values()
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: device not in dict(socket.if_nameindex()).values(), "its device is gone")
    assert get(serves) == serves


def test_two_clouds_have_two_subnets_and_a_third_none(own: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the first that is free; when none is, the words say so. A closed one's is free again."""
    # Others than those of the clouds that other tests run meanwhile.
    monkeypatch.setattr(network, "_DEVICE", f"test{os.getpid()}-")
    monkeypatch.setattr(network, "_SUBNETS", tuple(IPv4Network("198.51.100.0/24").subnets()))
    first, second = OwnNetworks(), OwnNetworks()
    try:
        assert {one.new_address() for one in (first, second)} == {"198.51.100.2", "198.51.100.130"}
        with pytest.raises(NetworkError, match="all 2 subnets are taken"):
            OwnNetworks()
        first.close()
        wait_until(lambda: "taken" not in network.choose().words, "its subnet is free")
    finally:
        second.close()


BIG = 400_000
SERVE_BIG = f"head -c {BIG} /dev/zero > big; {EVERYWHERE}"


def seconds(address: str, path: str) -> float:
    """How long it takes to get it."""
    since = time.monotonic()
    assert get(address, path)
    return time.monotonic() - since


def shape(machines: Machines, instance_id: str, wanted: Shape) -> None:
    """Wait until it has the shape."""
    wait_until(lambda: machines.shape(instance_id, wanted), f"{instance_id} is on its network")


def test_a_rate_is_of_one_instance_and_until_taken_away(own: Machines) -> None:
    """A quarter of the rate takes several times as long; another instance isn't slowed down."""
    slow, other = serving(own, "i-1", SERVE_BIG), serving(own, "i-2", SERVE_BIG)
    took = {}
    for rate in (2.0, 8.0):
        shape(own, "i-1", Shape(rate_mbit=rate))
        took[rate] = seconds(slow, "big")
    assert took[2.0] > 2.5 * took[8.0]
    assert took[8.0] > 0.8 * BIG * 8 / 8e6, "no faster than its rate"
    assert seconds(other, "big") < took[2.0] / 2
    shape(own, "i-1", Shape())
    assert seconds(slow, "big") < took[2.0] / 2


def test_a_latency_is_of_one_instance_and_until_taken_away(own: Machines) -> None:
    """Connecting and asking are two round trips, each so much longer; with half of it, half as long."""
    far, near = serving(own, "i-1"), serving(own, "i-2")
    took = {}
    for latency in (0.4, 0.2):
        shape(own, "i-1", Shape(latency_s=latency))
        took[latency] = seconds(far, "here")
        assert took[latency] > 2 * latency
    assert took[0.4] > 1.3 * took[0.2]
    assert seconds(near, "here") < took[0.4] / 2
    shape(own, "i-1", Shape())
    assert seconds(far, "here") < took[0.4] / 2


def test_what_can_t_be_slowed_down_is_left_alone(own: Machines, shared: Machines) -> None:
    """An instance without processes, one that ended, one on a shared network; nothing of this machine's."""
    own.start("i-1", own.new_address(), "")
    assert own.shape("i-1", Shape(rate_mbit=1))
    assert own.shape("i-unknown", Shape(rate_mbit=1))
    boot(shared, "i-1", "sleep 1000")
    with pytest.raises(NetworkError, match=r"share this machine's network \(as was asked for\)"):
        shared.shape("i-1", Shape(rate_mbit=1))


def test_a_process_of_this_machine_s_network_is_never_shaped(networks: OwnNetworks) -> None:
    """Until an instance has its namespace, its eth0 would be this machine's: it has to be tried again."""
    address = networks.new_address()
    with subprocess.Popen(["sleep", "1000"]) as here:
        process = networks.start(address, ["sleep", "1000"], os.environ, 1, Path())
        try:
            wait_until(lambda: networks.shape(process.pid, address, Shape(rate_mbit=1)), "it has its network")
            assert not networks.shape(here.pid, address, Shape(rate_mbit=1))
        finally:
            here.kill()
            process.kill()
            process.communicate()
            networks.close()


@pytest.mark.parametrize("arguments", [{"rate_mbit": 0.0}, {"rate_mbit": -1.0}, {"latency_s": -0.1}])
def test_impossible_shapes_are_named(arguments: dict[str, float]) -> None:
    """A rate of nothing and a negative time are refused, with what was expected."""
    (name,) = arguments
    with pytest.raises(ValueError, match=f"{name}=.*expected"):
        Shape(**arguments)


def test_without_the_tools_the_network_is_shared_and_the_words_say_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It works all the same, says what can't be told apart and what is missing; "own" insists."""
    monkeypatch.setattr(network, "_TOOLS", ("ip", "no-such-tool"))
    chosen = network.choose()
    assert isinstance(chosen, SharedNetwork)
    for part in ("there is no command no-such-tool", "look ready", "iproute2"):
        assert part in chosen.words
    with pytest.raises(NetworkError, match="no-such-tool"):
        network.choose("own")
    assert "as was asked for" in network.choose("shared").words
