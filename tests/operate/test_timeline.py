"""The picture of a service's replicas."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from spotrelay.operator.look import timeline
from spotrelay.operator.look.timeline import NARROW, WIDE, Mark
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.replica import TRIAL, Replica, ReplicaState
from spotrelay.plane.core.timing import seconds
from tests.operate.replicas import START, replica

LENGTH_S = 150.0
SCALE = (WIDE.width - WIDE.left - WIDE.right) / LENGTH_S

LOST = replica(
    1,
    ReplicaState.TERMINATED,
    entered={"REQUESTED": 0, "PROVISIONING": 1, "STARTING": 2, "READY": 6, "DRAINING": 32, "TERMINATED": 50},
)
REPLACEMENT = replica(2, entered={"REQUESTED": 20, "STARTING": 60, "READY": 66}, replaces=1)
FALLBACK = replica(
    3,
    ReplicaState.TERMINATED,
    entered={"REQUESTED": 22, "STARTING": 24, "READY": 31, "DRAINING": 70, "TERMINATED": 90},
    option=PurchaseOption.ON_DEMAND,
    is_fallback=True,
)
MARK = Mark(
    label="c",
    replica=1,
    fallback=3,
    warned_at=START + seconds(20),
    serves_on_since=START + seconds(20),
    out_at=START + seconds(32),
    taken_at=START + seconds(50),
)


def draw(*replicas: Replica, marks: tuple[Mark, ...] = (MARK,)) -> ET.Element:
    """The picture, parsed."""
    svg = timeline.draw(replicas, marks, START, START + seconds(LENGTH_S), "A <title> & more", "of it")
    return ET.fromstring(svg)  # noqa: S314 - our own picture


@pytest.fixture
def picture() -> ET.Element:
    """A lost replica, its replacement, and the fallback that served in between."""
    return draw(LOST, REPLACEMENT, FALLBACK)


def middle(row: int) -> float:
    """Height of the middle of a row."""
    return timeline.TOP + row * WIDE.row + WIDE.row / 2


def filled(picture: ET.Element, pattern: str) -> list[dict[str, str]]:
    """The bars with this pattern, the legend's left out."""
    bars = [e.attrib for e in picture.iter() if e.attrib.get("fill") == f"url(#{pattern})"]
    *in_rows, legend = bars
    assert float(legend["y"]) > middle(2)
    return in_rows


def test_it_shows_every_replica_and_every_mark(picture: ET.Element) -> None:
    """It is well-formed SVG, names each replica and how it was bought, and flags each mark with its label."""
    texts = [element.text for element in picture.iter() if element.text]
    assert [text for text in texts if text.startswith("#")] == ["#1", "#2", "#3"]
    assert [text for text in texts if text in ("spot", "on-demand")] == ["spot", "spot", "on-demand"]
    assert texts.count("c") == 1
    assert "A <title> & more" in texts


@pytest.mark.parametrize(
    ("states", "is_fallback", "reason", "begins"),
    [
        ({"REQUESTED": 0, "PROVISIONING": 20, "READY": 30}, True, "", 20),
        ({"REQUESTED": 0, "STANDBY": 40}, False, "", 40),
        ({"REQUESTED": 0, "PROVISIONING": 1, "STARTING": 2, "STANDBY": 40}, False, "", 0),
        ({"REQUESTED": 0, "PROVISIONING": 20, "STARTING": 22, "STANDBY": 40}, False, TRIAL, 20),
    ],
    ids=["resumed", "returned", "prepared", "tried out"],
)
def test_a_standby_begins_when_its_row_does(
    states: dict[str, float], is_fallback: bool, reason: str, begins: float
) -> None:
    """Its instance may have been requested long before, in another row, whose bar shows that."""
    row = replica(1, entered=states, is_fallback=is_fallback, is_standby=True)
    picture = draw(replace(row, reason=reason), marks=())
    bars = [
        float(e.attrib["x"])
        for e in picture.iter()
        if e.attrib.get("height") == str(timeline.BAR) and float(e.attrib["y"]) < middle(1)
    ]
    assert min(bars) == pytest.approx(WIDE.left + begins * SCALE, abs=0.1)


def test_it_hatches_fallbacks(picture: ET.Element) -> None:
    """Only a fallback's bar is hatched, and the legend says what that means."""
    rows = {float(bar["y"]) + timeline.BAR / 2 for bar in filled(picture, timeline.HATCH)}
    assert rows == {middle(2)}
    assert "fallback" in [element.text for element in picture.iter()]


def test_it_leads_from_the_lost_one_to_those_in_its_place(picture: ET.Element) -> None:
    """A dotted line goes to the replacement, and one to the fallback, each when it was requested."""
    lines = [e.attrib for e in picture.iter() if e.attrib.get("stroke-dasharray")]
    ends = [(float(line["y1"]), float(line["y2"]), float(line["x1"])) for line in lines]
    expected = [(middle(0), middle(row), WIDE.left + at * SCALE) for row, at in ((1, 20), (2, 22))]
    assert ends == [pytest.approx(line, abs=0.1) for line in expected]


def test_it_hatches_who_serves_on(picture: ET.Element) -> None:
    """From the warning until it is out of rotation the lost one's bar is hatched, and the legend has it."""
    (bar,) = filled(picture, timeline.SERVES_ON)
    assert float(bar["y"]) + timeline.BAR / 2 == middle(0)
    assert float(bar["x"]) == pytest.approx(WIDE.left + 20 * SCALE, abs=0.1)
    assert float(bar["width"]) == pytest.approx(12 * SCALE, abs=0.1)
    assert "warned, keeps serving" in [element.text for element in picture.iter()]


def test_it_crosses_out_what_ec2_took() -> None:
    """A cross where EC2 took the instance, and none where it didn't."""
    untaken = Mark("c", 1, None, MARK.warned_at, None, None, None)
    crosses = [
        [e.attrib for e in draw(LOST, marks=(mark,)).iter() if e.attrib.get("stroke") == timeline.WARNING_INK]
        for mark in (MARK, untaken)
    ]
    strokes = [line for line in crosses[0] if line not in crosses[1]]
    assert len(strokes) == 2
    centre = WIDE.left + 50 * SCALE
    assert [float(line["x1"]) for line in strokes] == pytest.approx([centre - 4] * 2, abs=0.1)


def test_it_stays_within_its_frame(picture: ET.Element) -> None:
    """A replica that outlives the picture ends at its edge."""
    boxes = [e for e in picture.iter() if e.tag.endswith("rect")]
    assert max(float(b.attrib["x"]) + float(b.attrib["width"]) for b in boxes) <= WIDE.width


def test_the_axis_can_tell_the_time_of_day() -> None:
    """Round times in UTC instead of seconds since the start, for a picture that moves."""
    svg = timeline.draw([LOST], [], START, START + seconds(1800), "title", "of it", axis=timeline.Axis.CLOCK)
    found = [e.text for e in ET.fromstring(svg).iter() if e.get("text-anchor") == "middle"]  # noqa: S314
    assert found[:3] == ["00:00", "00:05", "00:10"]
    svg = timeline.draw([LOST], [], START, START + seconds(60), "title", "of it", axis=timeline.Axis.CLOCK)
    found = [e.text for e in ET.fromstring(svg).iter() if e.get("text-anchor") == "middle"]  # noqa: S314
    assert found[:2] == ["00:00:00", "00:00:10"]


def test_a_narrow_picture_has_all_of_it_within_a_phones_width() -> None:
    """Names are above their bars; no text, bar or line of the legend leaves the picture; each pattern is
    its own, so that it shows beside a wide picture that is hidden."""
    svg = timeline.draw(
        [LOST, REPLACEMENT, FALLBACK],
        [MARK],
        START,
        START + seconds(LENGTH_S),
        "title",
        "of it",
        flags=(("w", "lost, warned"), ("!", "lost, no warning")),
        layout=NARROW,
    )
    root = ET.fromstring(svg)  # noqa: S314 - our own picture
    wide = draw(LOST, REPLACEMENT, FALLBACK)

    def words(picture: ET.Element) -> set[str]:
        return {text for e in picture.iter() if e.tag.endswith("text") and (text := e.text) and "#" in text}

    assert words(root) == words(wide) == {"#1", "#2", "#3"}
    height = float(root.attrib["height"])
    for element in root.iter():
        if element.tag.endswith("text"):
            x, y = float(element.attrib["x"]), float(element.attrib["y"])
            length = len(element.text or "") * 6 * (element.attrib["text-anchor"] == "start")
            assert x + length <= NARROW.width, element.text
            assert y < height, element.text
        if element.tag.endswith("rect") and "x" in element.attrib:
            assert float(element.attrib["x"]) + float(element.attrib["width"]) <= NARROW.width
    ids = {e.attrib["id"] for e in root.iter() if "id" in e.attrib}
    assert not ids & {e.attrib["id"] for e in wide.iter() if "id" in e.attrib}
    used = {e.attrib["fill"] for e in root.iter() if e.attrib.get("fill", "").startswith("url")}
    assert used <= {f"url(#{id_})" for id_ in ids}
