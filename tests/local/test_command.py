"""`python -m lab.local`: what it says, and that it leaves nothing behind."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lab.local.client import LocalCloud, LocalCloudError
from tests.local.conftest import PATIENCE_S, Aws, endpoint_of, eventually, start


def run(*options: str) -> subprocess.CompletedProcess[str]:
    """The command with options that it won't start with."""
    command = [sys.executable, "-m", "lab.local", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_port_in_use_is_one_line_with_a_remedy() -> None:
    """A taken port is named, with what to do about it, and no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("--port", str(port))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"port {port}" in done.stderr
    assert "--port 0" in done.stderr


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--warning-s", "soon"], "--warning-s"),
        (["--boot-s", "-1"], "above 0"),
        (["--port", "70000"], "0 to 65535"),
        (["--no-such"], "--no-such"),
    ],
)
def test_wrong_options_are_named(options: list[str], complaint: str) -> None:
    """Whatever is wrong with an option, the message says which and what was expected."""
    done = run(*options)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_own_networks_can_be_insisted_on() -> None:
    """Where the machine doesn't allow them, it doesn't start, and names the reason and the remedy."""
    command = [sys.executable, "-m", "lab.local", "--network", "own", "--port", "0"]
    done = subprocess.run(
        command, env={"PATH": "/nonexistent"}, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("lab.local: --network own: there is no command ")
    assert "unshare -Urn" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_and_every_instance(tmp_path: Path, number: signal.Signals) -> None:
    """Told to stop, it exits with 0, and its instances' processes are gone with it."""
    process = start(tmp_path / "ready.json", "--boot-s", "0.1", "--call-log", str(tmp_path / "calls.jsonl"))
    aws = Aws(endpoint_of(process, tmp_path / "ready.json"))
    children, words = run_an_instance(aws, process.pid), aws.local.network()
    process.send_signal(number)
    greeting, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert f"--endpoint-url {aws.endpoint}" in greeting
    assert f"Network: {words}\n" in greeting
    assert "RunInstances" in (tmp_path / "calls.jsonl").read_text()
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert alive == []


def test_end_of_the_parent_ends_it(tmp_path: Path) -> None:
    """Whoever started it may be killed: nothing stays behind."""
    ready = tmp_path / "ready.json"
    script = (
        "import subprocess, sys; "
        "subprocess.run([sys.executable, '-m', 'lab.local', '--port', '0', '--boot-s', '0.1', "
        f"'--ready-file', {str(ready)!r}])"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    aws = Aws(endpoint_of(parent, ready))
    (cloud,) = psutil.Process(parent.pid).children()
    children = run_an_instance(aws, cloud.pid)
    parent.kill()
    parent.communicate(timeout=PATIENCE_S)
    _, alive = psutil.wait_procs([cloud, *children], timeout=PATIENCE_S)
    assert alive == []


def run_an_instance(aws: Aws, pid: int) -> list[psutil.Process]:
    """The processes of an instance."""
    user_data = "#cloud-config\nwrite_files:\n- path: /opt/spotrelay/run.sh\n  content: sleep 1000\n"
    aws.ec2.run_instances(
        MinCount=1, MaxCount=1, ImageId="ami-1", InstanceType="g5.xlarge", UserData=user_data
    )
    return eventually(lambda: psutil.Process(pid).children(recursive=True), "the instance's process runs")


def test_client_without_a_cloud_says_how_to_start_one() -> None:
    """A connection refused becomes one sentence with the remedy."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(LocalCloudError, match=r"python -m lab\.local"):
        LocalCloud(f"http://127.0.0.1:{port}").instances()
