"""Recordings that aren't: each gets one line that names the thing, the place and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab.replay.traces import TraceError, load

from .recordings import capacity_csv, lines, pool_json

GOOD = "us-east-1a_v100_1.json"


def wrong(path: Path) -> str:
    """What is said about it, after its path."""
    with pytest.raises(TraceError) as caught:
        load(path, replicas=3)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message.removeprefix(str(path))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([4, -1], "data[1] must be a whole number of instances, 0 or more, not -1"),
        ([4, None], "data[1] must be a whole number of instances, 0 or more, not null"),
        ([4, 1.5], "not 1.5"),
        ([4, True], "not true"),
        ([4, "2"], 'not "2"'),
        ([4, [2]], "not [2]"),
        ([], "data must be a list of at least one number of instances, not []"),
        (None, "data must be a list of at least one number of instances, not null"),
        ({"a": 1}, "data must be a list"),
    ],
)
def test_values_that_are_no_numbers_of_instances(tmp_path: Path, data: object, said: str) -> None:
    """Which value of which file, and what it is."""
    pool_json(tmp_path, GOOD, data)
    message = wrong(tmp_path)
    assert message.startswith(f"/{GOOD}: ")
    assert said in message


@pytest.mark.parametrize("gap", [0, -300, None, "300", True, [300], float("inf"), float("nan")])
def test_a_gap_that_is_no_duration(tmp_path: Path, gap: object) -> None:
    """Zero, negative, missing, or no number."""
    pool_json(tmp_path, GOOD, [1, 2], gap_seconds=gap)
    assert "metadata.gap_seconds must be the seconds between two values" in wrong(tmp_path)


def test_different_gaps_in_one_folder(tmp_path: Path) -> None:
    """Two recordings were mixed up; both gaps are named."""
    pool_json(tmp_path, GOOD, [1, 2], gap_seconds=300)
    pool_json(tmp_path, "us-east-1b_v100_1.json", [1, 2], gap_seconds=195)
    message = wrong(tmp_path)
    assert message.startswith("/us-east-1b_v100_1.json: metadata.gap_seconds is 195, but 300 in us-east-1a")


@pytest.mark.parametrize(
    "name",
    [
        *("trace.json", "us-east-1a_v100.json", "us-east-1a_v100_x.json", "us-east-1a_v100_0.json"),
        *("_v_1.json", "us-east-1a_1.json", "us-east-1_v100_1.json", "a__b_1.json"),
    ],
)
def test_a_name_that_names_no_pool(tmp_path: Path, name: str) -> None:
    """The file's name is where zone and type are from."""
    pool_json(tmp_path, name, [1])
    assert wrong(tmp_path).startswith(f"/{name}: the file's name must be <zone>_<accelerator>_<count>.json")


@pytest.mark.parametrize("nameless", ["a100_40gb_8.json", "v100_1.json"])
def test_some_names_with_a_zone_and_some_without(tmp_path: Path, nameless: str) -> None:
    """Nobody knows where the one without is: both files are named, whichever comes first."""
    pool_json(tmp_path, GOOD, [1])
    pool_json(tmp_path, nameless, [1])
    message = wrong(tmp_path)
    assert message.startswith(f"/{nameless}: the file's name has no zone, but that of {GOOD} has one: rename")


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2]", "null", "[" * 100_000, '{"data": [1' + "0" * 5000 + "]}"]
)
def test_what_is_not_such_a_document(tmp_path: Path, text: str) -> None:
    """No JSON, no object, or JSON that only means to break the reader."""
    (tmp_path / GOOD).write_text(text, encoding="utf-8")
    assert wrong(tmp_path).startswith(f"/{GOOD}: ")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """A compressed file with a wrong name, say."""
    (tmp_path / GOOD).write_bytes(b"\x1f\x8b\xff\xfe")
    assert "is not UTF-8 text" in wrong(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    """A wrong path, an empty folder, a folder of folders, a file of another kind."""
    assert "no such file or folder" in wrong(tmp_path / "none")
    assert "has no traces" in wrong(tmp_path)
    (tmp_path / "inner").mkdir()
    assert "give one of its folders (inner)" in wrong(tmp_path)
    file = lines(tmp_path / "notes.txt", "hello")
    assert "neither a .json nor a .csv file" in wrong(file)


def test_formats_mixed_in_one_folder(tmp_path: Path) -> None:
    """Both files and their formats are named."""
    pool_json(tmp_path, GOOD, [1, 2])
    lines(tmp_path / "events.csv", "0,add,node1", "1000,add,node2")
    message = wrong(tmp_path)
    assert "files of different formats, events.csv (node events) and us-east-1a_v100_1.json" in message
    (tmp_path / GOOD).unlink()
    capacity_csv(tmp_path / "mine.csv", ["0,us-east-1a,g5.xlarge,4", "9,us-east-1a,g5.xlarge,4"])
    assert "events.csv (node events) and mine.csv (capacity by rows)" in wrong(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (["0,add,n", "900,add,m", "800,add,o"], ":3: 800 ms comes after 900 ms"),
        (["0,add,n", "900,add,n"], ":2: n is added twice"),
        (["0,add,n", "900,remove,m"], ":2: m is removed but was never added"),
        (["0,add,n", "900,stop,n"], ":2: expected ms,add|remove,node"),
        (["0,add,n", "900,add,"], ":2: expected ms,add|remove,node"),
        (["0,add,n", "900,add,m,x"], ":2: expected ms,add|remove,node"),
        (["0,add,n", "inf,add,m"], ":2: expected ms,add|remove,node"),
        (["0,add,n", "x,add,m"], ":2: expected ms,add|remove,node"),
        (["-5,add,n", "0,add,m"], ":1: expected ms,add|remove,node"),
        (["0,add,n", "0,add,m"], ": covers no time"),
        (["1767225600000,add,n", "1767225700000,add,m"], ":1: the first event is 20,454 days after"),
    ],
)
def test_node_events_that_cannot_be(tmp_path: Path, content: list[str], said: str) -> None:
    """Which line, and what is the matter with it."""
    assert said in wrong(lines(tmp_path / "events.csv", *content))


def test_more_files_of_node_events_than_zones_have_letters(tmp_path: Path) -> None:
    """Each file is a zone; the limit is said, not met by a crash."""
    for n in range(27):
        lines(tmp_path / f"{n:02}.csv", "0,add,n", "900,add,m")
    assert "has 27 files of node events, at most 26" in wrong(tmp_path)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["0,us-east-1a,g5.xlarge,-1"], ":2: capacity must be a whole number, 0 or more, not '-1'"),
        (["0,us-east-1a,g5.xlarge,1.5"], ":2: capacity must be a whole number"),
        (["0,us-east-1a,g5.xlarge,"], ":2: expected second,zone,instance_type,capacity"),
        (["0,us-east-1a,g5.xlarge"], ":2: expected second,zone,instance_type,capacity"),
        (["0,us-east-1a,g5.xlarge,1,2"], ":2: expected second,zone,instance_type,capacity"),
        (["-1,us-east-1a,g5.xlarge,1"], ":2: second must be a number, 0 or more"),
        (["nan,us-east-1a,g5.xlarge,1"], ":2: second must be a number, 0 or more"),
        (["soon,us-east-1a,g5.xlarge,1"], ":2: second must be a number, 0 or more, not 'soon'"),
        (["5,us-east-1a,g5.xlarge,1"], ":2: us-east-1a/g5.xlarge begins at second 5: add a row for second 0"),
        (
            ["0,us-east-1a,g5,1", "9,us-east-1a,g5,1", "8,us-east-1a,g5,2"],
            ":4: us-east-1a/g5 goes back to second 8",
        ),
        (
            ["0,us-east-1a,g5,1", "9,us-east-1a,g5,1", "9,us-east-1a,g5,2"],
            ":4: us-east-1a/g5 has two rows for",
        ),
        (["0,us-east-1a,g5.xlarge,1"], ": covers no time"),
        ([], ": has no rows below its header"),
    ],
)
def test_rows_that_cannot_be(tmp_path: Path, rows: list[str], said: str) -> None:
    """Which row, and what is the matter with it."""
    assert said in wrong(capacity_csv(tmp_path / "mine.csv", rows))


def test_columns_nobody_knows(tmp_path: Path) -> None:
    """A CSV of something else, and one of ours with a column too many or too few."""
    assert ":1: neither the header" in wrong(lines(tmp_path / "a.csv", "minute,requests", "0,12"))
    assert ":1: the columns must be second,zone,instance_type,capacity, not 'second,zone,capacity'" in wrong(
        lines(tmp_path / "b.csv", "second,zone,capacity", "0,us-east-1a,4")
    )
    assert "is empty" in wrong(lines(tmp_path / "c.csv", ""))


def test_a_pool_in_two_files(tmp_path: Path) -> None:
    """Nobody knows which one is right; both are named."""
    for name in ("a.csv", "b.csv"):
        capacity_csv(tmp_path / name, ["0,us-east-1a,g5,1", "9,us-east-1a,g5,2"])
    assert wrong(tmp_path).startswith("/b.csv: us-east-1a/g5 is in a.csv as well")


@pytest.mark.parametrize("make", [lambda p: p.mkdir(), lambda p: p.symlink_to("nowhere.json")])
def test_a_name_of_a_file_that_is_none(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A folder, or a link to nothing, with a trace's name doesn't crash the reader."""
    make(tmp_path / GOOD)
    assert wrong(tmp_path)
