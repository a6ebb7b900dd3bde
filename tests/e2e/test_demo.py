"""`make demo`, as a user runs it: to its end, and broken off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import psutil
import pytest

from lab.demo.settings import ROOT

DEMO_WITHIN_S = 360.0
"""Some 90 s where the machine has nothing else to do; other tests run beside this one."""

GONE_WITHIN_S = 30.0


class Demo:
    """A running demo, and every process that it has ever started."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lab.demo", "--out", str(out)],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name != "WARNING_S"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._seen: set[psutil.Process] = set()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._read, self._watch)]
        for thread in self._threads:
            thread.start()

    def wait_for_line(self, text: str) -> None:
        """Wait until it has said something with this in it."""
        deadline = time.monotonic() + DEMO_WITHIN_S
        while not any(text in line for line in self.lines):
            assert self.process.poll() is None, "the demo ended:\n" + "\n".join(self.lines)
            assert time.monotonic() < deadline, f"no line with {text!r}:\n" + "\n".join(self.lines)
            time.sleep(0.05)

    def finish(self) -> int:
        """Wait for its end; the exit status."""
        status = self.process.wait(DEMO_WITHIN_S)
        for thread in self._threads:
            thread.join()
        return status

    def left_behind(self) -> list[str]:
        """Processes that it has started and that don't end."""
        assert len(self._seen) > 1, "no child was ever seen, so this would prove nothing"
        _, alive = psutil.wait_procs(self._seen, GONE_WITHIN_S)
        return [str(process) for process in alive]

    def kill(self) -> None:
        """Leave nothing behind, whatever the test has found."""
        self.process.kill()
        for process in self._seen:
            if process.is_running():
                process.kill()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def _watch(self) -> None:
        demo = psutil.Process(self.process.pid)
        while self.process.poll() is None:
            try:
                self._seen.update(demo.children(recursive=True))
            except psutil.NoSuchProcess:
                break
            time.sleep(0.1)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    """A demo that has just been started, with the default warning."""
    running = Demo(tmp_path / "demo")
    yield running
    running.kill()


@pytest.mark.slow
def test_the_demo_keeps_every_promise(demo: Demo) -> None:
    """Six stories, nine interruptions, nothing failed or cut, whole fleets, a report, no process left."""
    assert demo.finish() == 0, "\n".join(demo.lines)
    report = json.loads((demo.out / "report.json").read_text())
    assert report["ok"] is True
    assert report["problems"] == []
    assert report["warning_s"] == 30
    assert [story["story"] for story in report["stories"]] == ["a", "b", "c", "d", "e", "f"]
    assert all(story["ok"] for story in report["stories"])

    requests = report["requests"]
    # On a machine that needs 20 s for a start, nobody could serve what comes in story (f) until there is one.
    unservable = requests["unservable"]
    assert requests["sent"] - unservable == requests["finished"] > 100
    assert (requests["failed"], requests["cut"]) == (unservable, 0)

    interruptions = report["interruptions"]
    assert [i["story"] for i in interruptions] == [*"abbcdefff"]
    assert [i["event"] for i in interruptions] == ["once"] * 4 + ["lost", "3 times"] + ["once"] * 3
    for i in interruptions:
        assert 0 < i["warned_to_launched_s"] <= i["warned_to_ready_s"]
        if i["served_on_s"] is None:
            assert 0 < i["warned_to_deregistered_s"] <= i["warned_to_launched_s"]
        assert i["warned_to_reclaimed_s"] == pytest.approx(30, abs=5)
    assert [i["service"] for i in interruptions] == [
        "demo-2" if i["story"] == "c" else "demo" for i in interruptions
    ]
    # Where one of three is lost, or of two, the others are enough for it to leave at once.
    assert [i["served_on_s"] is not None for i in interruptions if i["story"] in "acde"] == [False] * 4
    in_story_f = [i for i in interruptions if i["story"] == "f"]
    last = max(in_story_f, key=lambda i: i["warned_to_deregistered_s"])
    assert last["served_on_s"] is not None
    needed_s = min(i["warned_to_ready_s"] for i in in_story_f)
    # An event's time has whole seconds, so ten seconds before the end may be eleven.
    assert last["warned_to_deregistered_s"] >= min(needed_s, 30 - 10 - 1)

    replicas = {(replica["service"], replica["id"]): replica for replica in report["replicas"]}
    ids = {name: sorted(id_ for service, id_ in replicas if service == name) for name in ("demo", "demo-2")}
    assert all(of_one == list(range(1, len(of_one) + 1)) for of_one in ids.values())
    # Where the machine is so busy that EC2 takes an instance before the replacement serves, there are more.
    fallbacks = {id_ for id_, r in replicas.items() if r["is_fallback"]}
    regular = {id_: r for id_, r in replicas.items() if id_ not in fallbacks}
    assert len(regular) == 3 + 2 + 9
    assert {id_ for id_, r in regular.items() if r["state"] == "TERMINATED"} == {
        (i["service"], i["replica"]) for i in interruptions
    }
    assert {r["purchase_option"] for r in regular.values()} == {"spot"}
    assert all(replicas[id_]["state"] == "TERMINATED" for id_ in fallbacks)
    in_story_c = next(i for i in interruptions if i["story"] == "c")
    fallback = replicas["demo-2", in_story_c["fallback"]]
    assert (fallback["purchase_option"], fallback["reason"]) == ("on-demand", "Spot is back")
    # Make before break: the replacement serves when the fallback goes.
    back = replicas["demo-2", in_story_c["replaced_by"]]["entered"]["READY"]
    assert back < fallback["entered"]["DRAINING"] < fallback["entered"]["TERMINATED"]
    replacements = [replicas[i["service"], i["replaced_by"]] for i in interruptions]
    assert [r["replaces"] for r in replacements] == [i["replica"] for i in interruptions]
    in_story_b = [i for i in interruptions if i["story"] == "b"]
    dried_up = {i["pool"] for i in in_story_b}
    assert len(dried_up) == 1
    type_ = dried_up.pop().split("/")[1]
    assert all(replicas["demo", i["replaced_by"]]["pool"].split("/")[1] != type_ for i in in_story_b)

    assert report["calls"]["ec2:CreateFleet"] >= 6
    assert [i["warned_to_terminated_s"] for i in interruptions] == [None] * 9, "those are EC2's to take"
    assert 1 <= report["calls"]["ec2:TerminateInstances"] <= len(fallbacks), "and these are ours"
    assert report["summary"]["warned_to_deregistered_s"].keys() == {"median", "max"}
    for service in ids:
        ET.fromstring((demo.out / f"timeline-{service}.svg").read_text())  # noqa: S314 - our own picture
    assert demo.left_behind() == []


@pytest.mark.parametrize("moment", ["cdk deploy", "(a)"])
def test_ctrl_c_leaves_nothing_behind(demo: Demo, moment: str) -> None:
    """Broken off while it deploys or serves, the demo stops all that it has started and says so in a line."""
    demo.wait_for_line(moment)
    os.killpg(demo.process.pid, signal.SIGINT)
    assert demo.finish() == 128 + signal.SIGINT, "\n".join(demo.lines)
    assert demo.lines[-1] == "demo: interrupted (SIGINT); the local cloud and everything in it is stopped"
    assert demo.left_behind() == []


def test_a_second_demo_in_the_same_place_is_refused(demo: Demo) -> None:
    """Two demos would overwrite each other's report: the second one says so, and starts nothing."""
    demo.wait_for_line("starting the local cloud")
    second = subprocess.run(
        [sys.executable, "-m", "lab.demo", "--out", str(demo.out)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert second.returncode == 2
    assert second.stderr.startswith(f"demo: another demo runs and writes to {demo.out}")
    demo.process.send_signal(signal.SIGTERM)
    assert demo.finish() == 128 + signal.SIGTERM
    assert demo.left_behind() == []
