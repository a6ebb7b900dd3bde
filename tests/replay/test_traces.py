"""Recordings as they should be, in all three formats."""

from __future__ import annotations

from pathlib import Path

from lab.replay.traces import ANY_NUMBER, PoolTrace, Regions, by_region, load
from spotrelay.plane.core.pools import CapacityPool

from .recordings import capacity_csv, lines, pool_json

EAST = CapacityPool("us-east-1", "us-east-1a", "v100:1")


def test_a_folder_of_json_files_is_a_pool_each(tmp_path: Path) -> None:
    """Zone, region and type come from the name, changes from the values; the last value lasts a step, too."""
    pool_json(tmp_path, "us-east-1a_v100_1.json", [2, 2, 0, 3])
    pool_json(tmp_path, "us-central1-b_v100_8.json", [1, 1, 1, 1])
    trace = load(tmp_path, replicas=3)
    assert trace.name == tmp_path.name
    assert trace.duration_s == 1200
    assert trace.notes == ()
    central, east = trace.pools
    assert central == PoolTrace(CapacityPool("us-central1", "us-central1-b", "v100:8"), ((0.0, 1),))
    assert east == PoolTrace(EAST, ((0.0, 2), (600.0, 0), (900.0, 3)))


def test_one_json_file_is_a_trace_of_one_pool(tmp_path: Path) -> None:
    """A path may name a file; what else a document holds doesn't matter."""
    file = tmp_path / "us-east-1a_v100_1.json"
    file.write_text('{"metadata": {"gap_seconds": 34}, "data": [5], "prices": [1.2]}', encoding="utf-8")
    trace = load(file, replicas=3)
    assert (trace.name, trace.duration_s) == ("us-east-1a_v100_1", 34)
    assert trace.pools == (PoolTrace(EAST, ((0.0, 5),)),)


def test_unequal_lengths_are_cut_to_the_common_prefix_and_said(tmp_path: Path) -> None:
    """What only some files know is not replayed."""
    pool_json(tmp_path, "us-east-1a_v100_1.json", [4] * 500 + [0] * 100)
    pool_json(tmp_path, "us-east-1b_v100_1.json", [4] * 432)
    trace = load(tmp_path, replicas=3)
    assert trace.duration_s == 432 * 300
    assert all(pool.capacity == ((0.0, 4),) for pool in trace.pools)
    assert trace.notes == ("files of unequal length: the common prefix of 36.0 h is replayed",)


def test_zeros_and_ones_mean_none_and_any_number_and_it_is_said(tmp_path: Path) -> None:
    """Whoever asked for one instance at a time has not counted how many there were."""
    pool_json(tmp_path, "us-east-1a_v100_1.json", [1, 0, 1])
    pool_json(tmp_path, "us-east-1b_v100_1.json", [0, 0, 0])
    trace = load(tmp_path, replicas=3)
    assert trace.pools[0].capacity == ((0.0, ANY_NUMBER), (300.0, 0), (600.0, ANY_NUMBER))
    assert "as many as you ask for" in trace.notes[0]


def test_one_value_above_one_makes_all_of_them_numbers(tmp_path: Path) -> None:
    """A folder is read in one sense, its ones are instances then; too few of them are noted."""
    pool_json(tmp_path, "us-east-1a_v100_1.json", [1, 0, 1])
    pool_json(tmp_path, "us-east-1b_v100_1.json", [0, 2, 0])
    assert load(tmp_path, replicas=3).pools[0].capacity == ((0.0, 1), (300.0, 0), (600.0, 1))
    assert load(tmp_path, replicas=3).notes == ()
    assert "never hold 4 instances" in load(tmp_path, replicas=4).notes[0]


def test_other_files_of_the_folder_are_left_alone(tmp_path: Path) -> None:
    """A licence, a README, something hidden."""
    pool_json(tmp_path, "us-east-1a_v100_1.json", [2])
    for name in ("LICENSE", "README.md", ".DS_Store", ".hidden.json"):
        (tmp_path / name).write_bytes(b"\xff")
    assert len(load(tmp_path, replicas=1).pools) == 1


def test_node_events_are_counted(tmp_path: Path) -> None:
    """A pool held as many as were alive; several events at one moment are one change."""
    file = lines(
        tmp_path / "p3-trace.csv",
        "0,add,node1",
        "0,add,node2",
        "60000,remove,node1",
        "60000,remove,node2",
        "90500,add,node1",
        "120000,add,node3",
    )
    trace = load(file, replicas=1)
    (pool,) = trace.pools
    assert pool.pool.instance_type == "p3-trace"
    assert pool.capacity == ((0.0, 2), (60.0, 0), (90.5, 1))
    assert trace.duration_s == 120
    assert trace.notes[0].startswith("node events:")


def test_a_folder_of_node_events_is_a_pool_per_file_from_a_common_start(tmp_path: Path) -> None:
    """Each has a zone of its own; the shorter recording decides the end."""
    lines(tmp_path / "a.csv", "0,add,n", "3000,add,m", "9000,add,o")
    lines(tmp_path / "b.csv", "1000,add,n", "7200,remove,n")
    trace = load(tmp_path, replicas=2)
    assert [(str(p.pool), p.capacity) for p in trace.pools] == [
        ("recorded-1a/a", ((0.0, 1), (3.0, 2))),
        ("recorded-1b/b", ((0.0, 0), (1.0, 1))),
    ]
    assert trace.duration_s == 7.2
    assert any("unequal length" in note for note in trace.notes)


def test_our_csv_has_pools_by_row(tmp_path: Path) -> None:
    """Rows of pools in any order, a pool's own in order of time; the last row of all is the end."""
    file = capacity_csv(
        tmp_path / "mine.csv",
        [
            "0,us-east-1a,g5.xlarge,4",
            "0, us-east-1b, g5.xlarge, 0",
            "60.5,us-east-1b,g5.xlarge,2",
            "",
            "30,us-east-1a,g5.xlarge,4",
            "600,us-east-1b,g5.xlarge,2",
        ],
    )
    trace = load(file, replicas=3)
    assert (trace.name, trace.duration_s, trace.notes) == ("mine", 600, ())
    a, b = trace.pools
    assert a == PoolTrace(CapacityPool("us-east-1", "us-east-1a", "g5.xlarge"), ((0.0, 4),))
    assert b.capacity == ((0.0, 0), (60.5, 2))


def test_our_csv_may_be_several_files_and_have_a_byte_order_mark(tmp_path: Path) -> None:
    """A file per zone, say, or one that a spreadsheet has saved."""
    capacity_csv(tmp_path / "a.csv", ["0,us-east-1a,g5.xlarge,4", "900,us-east-1a,g5.xlarge,4"])
    text = "\ufeffsecond,zone,instance_type,capacity\r\n0,us-east-1b,g5,2\r\n900,us-east-1b,g5,3\r\n"
    (tmp_path / "b.csv").write_text(text, encoding="utf-8", newline="")
    trace = load(tmp_path, replicas=3)
    assert [pool.pool.zone for pool in trace.pools] == ["us-east-1a", "us-east-1b"]
    assert trace.duration_s == 900


def test_more_than_any_number_is_any_number(tmp_path: Path) -> None:
    """Whoever writes a huge number means that there is no end."""
    pool_json(tmp_path, "us-east-1a_v100_1.json", [10**30, 2])
    assert load(tmp_path, replicas=3).pools[0].capacity == ((0.0, ANY_NUMBER), (300.0, 2))


def test_underscores_in_an_accelerators_name_are_its_own(tmp_path: Path) -> None:
    """The zone ends at the first underscore, the count begins after the last."""
    pool_json(tmp_path, "us-central1-a_a100_40gb_8.json", [2])
    (pool,) = load(tmp_path, replicas=1).pools
    assert pool.pool == CapacityPool("us-central1", "us-central1-a", "a100_40gb:8")


def test_files_named_by_type_and_count_are_pools_of_one_zone(tmp_path: Path) -> None:
    """The zone is made up, and that is said."""
    for name in ("a100_40gb_8.json", "a100-80gb_8.json", "rtx-pro-6000_1.json"):
        pool_json(tmp_path, name, [2, 3])
    trace = load(tmp_path, replicas=1)
    assert [str(p.pool) for p in trace.pools] == [
        *("recorded-1a/a100-80gb:8", "recorded-1a/a100_40gb:8", "recorded-1a/rtx-pro-6000:1")
    ]
    assert trace.notes == ("the files' names have no zone: all pools are put into one",)


def test_each_region_has_its_own_pools_and_the_time_of_all(tmp_path: Path) -> None:
    """A region's market ends with the whole, so that both can be compared, and says if it is small."""
    pool_json(tmp_path, "us-west-2a_v100_1.json", [1, 0, 1, 1])
    pool_json(tmp_path, "us-east-1a_v100_1.json", [2, 2, 2])
    pool_json(tmp_path, "us-west-2b_v100_1.json", [1, 1, 1])
    trace = load(tmp_path, replicas=3)
    east, west = by_region(trace, Regions.ONE, 3)
    cut = "files of unequal length: the common prefix of 15.0 min is replayed"
    small = "all pools together never hold 3 instances: the rest is on-demand's"
    assert (east.name, west.name) == (f"{trace.name}/us-east-1", f"{trace.name}/us-west-2")
    assert [p.pool.zone for p in east.pools] == ["us-east-1a"]
    assert [p.pool.zone for p in west.pools] == ["us-west-2a", "us-west-2b"]
    assert east.duration_s == west.duration_s == trace.duration_s == 900
    assert trace.notes == (cut,)
    assert east.notes == west.notes == (cut, small)
    assert by_region(trace, Regions.ONE, 2)[1].notes == (cut,)
    (whole,) = by_region(trace, Regions.ALL, 3)
    assert (whole.name, whole.pools) == (trace.name, trace.pools)
    assert whole.notes == (cut, "the pools of 2 regions are made one market, which no deployment has")
    assert by_region(trace, Regions.BOTH, 3) == [whole, east, west]


def test_what_is_too_small_as_a_whole_is_said_once(tmp_path: Path) -> None:
    """A region of a small recording is small, too; the note isn't repeated."""
    for zone in ("us-east-1a", "us-west-2a"):
        pool_json(tmp_path, f"{zone}_v100_1.json", [2, 0])
    whole, east, _ = by_region(load(tmp_path, replicas=5), Regions.BOTH, 5)
    assert [note for note in whole.notes if "never hold" in note] == list(east.notes)
    assert len(east.notes) == 1
