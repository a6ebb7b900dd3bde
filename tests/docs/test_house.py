"""The picture of the house shows the packages as they import each other."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest

from lab.pictures.files import IMAGES
from lab.pictures.house import FLOORS, Room, drawn, layers, rooms


@cache
def house() -> Mapping[str, Room]:
    """As the code is now: reading all imports takes seconds."""
    return rooms()


def test_the_picture_is_drawn_from_the_imports() -> None:
    """A package that is new, goes, or imports what it didn't makes the picture stale."""
    shown = (IMAGES / "house.svg").read_text(encoding="utf-8")
    assert shown == drawn(house()), "run: python -m lab.pictures.house"


def test_every_room_stands_on_those_below_it() -> None:
    """Whatever a room imports is on a floor below its own."""
    for number, floor in enumerate(FLOORS):
        below = {name for lower in FLOORS[number + 1 :] for name in lower}
        assert all(house()[name].imports.keys() <= below for name in floor)


def test_what_imports_stands_above() -> None:
    """In the lowest row that it can; in a circle nothing can stand anywhere."""
    imports = {"cli": {"look", "aws"}, "look": {"aws"}, "aws": set(), "advice": set[str]()}
    assert layers(imports) == [["advice", "aws"], ["look"], ["cli"]]
    with pytest.raises(ValueError, match="a circle of imports: cli, look"):
        layers(imports | {"look": {"cli"}})
