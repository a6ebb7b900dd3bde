"""`python -m lab.pictures.house`: the house of docs/architecture.md, drawn from the imports.

A room is one of spotrelay's packages, or one of the two folders that stand on them. Its boxes are the
packages and modules in it, in rows: whatever a box imports stands in a lower row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import grimp

from lab.pictures import files

PACKAGE = "spotrelay"

FLOORS = (("operator", "stacks"), ("file", "lambdas"), ("plane",))
"""The rooms beside each other, the uppermost first: each imports only from floors below its own."""

WITHOUT_BOXES = ("lambdas", "stacks")
"""Folders beside the package: of their files only what they import is shown."""

WIDTH, NARROW, EDGE, GAP = 1000, 230, 16, 12
BOX, TITLE, LINE = 36, 34, 17
"""Heights: of a box, of a room's name above its boxes, of a line of what it imports."""

WALLS = {
    "file": "#f0fdf4",
    "lambdas": "#f8fafc",
    "operator": "#fff7ed",
    "plane": "#eff6ff",
    "stacks": "#f8fafc",
}


@dataclass(frozen=True, slots=True)
class Room:
    """What there is in one, and on what it stands."""

    name: str
    rows: Sequence[Sequence[str]]
    """Its packages and modules, the lowest first: each row imports only from those before it."""
    imports: Mapping[str, Collection[str]]
    """Other rooms, and what of each it imports."""


def layers(imports: Mapping[str, Collection[str]]) -> list[list[str]]:
    """In rows, the lowest first: each part stands one above the highest that it imports.

    Raises:
        ValueError: some import each other in a circle.
    """
    rows: list[list[str]] = []
    left = dict(imports)
    while left:
        row = sorted(name for name, imported in left.items() if not left.keys() & set(imported))
        if not row:
            raise ValueError(f"a circle of imports: {', '.join(sorted(left))}")
        rows.append(row)
        left = {name: imported for name, imported in left.items() if name not in row}
    return rows


def rooms() -> Mapping[str, Room]:
    """Every room by its name, as the code imports now."""
    # Its cache mixes up what was read for other packages, and saves a third of a second.
    graph = grimp.build_graph(PACKAGE, *WITHOUT_BOXES, cache_dir=None)
    within: dict[str, dict[str, set[str]]] = {name: {} for floor in FLOORS for name in floor}
    others: dict[str, dict[str, set[str]]] = {name: {} for name in within}
    for module in graph.modules:
        room, part = _place(module)
        if room not in within or not part:
            continue
        beside = within[room].setdefault(part, set())
        for imported in graph.find_modules_directly_imported_by(module):
            other, of_other = _place(imported)
            if other == room:
                beside |= {of_other} - {part}
            elif other in within:
                others[room].setdefault(other, set()).add(of_other)
    return {name: Room(name, layers(parts), others[name]) for name, parts in within.items()}


def _place(module: str) -> tuple[str, str]:
    """A module's room and its box there; empty where it is in none."""
    parts = module.split(".")
    if parts[0] == PACKAGE:
        del parts[0]
    return (*parts, "", "")[0], (*parts, "", "")[1]


def drawn(house: Mapping[str, Room]) -> str:
    """The picture, as SVG."""
    walls, y = list[str](), EDGE
    for floor in FLOORS:
        height, x = max(_height(house[name]) for name in floor), EDGE
        for name in floor:
            width = NARROW if name in WITHOUT_BOXES else WIDTH - 2 * EDGE - (len(floor) - 1) * (NARROW + GAP)
            walls += _room(house[name], x, y, width, height)
            x += width + GAP
        y += height + GAP
    height = y - GAP + EDGE
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            ' font-family="system-ui, sans-serif" font-size="14">',
            "  <title>SpotRelay's packages: each imports only what stands below it</title>",
            f'  <rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *(f"  {line}" for line in walls),
            "</svg>",
            "",
        ]
    )


def _height(room: Room) -> int:
    boxes = 0 if room.name in WITHOUT_BOXES else len(room.rows) * (BOX + GAP)
    return TITLE + LINE * len(_imports(room)) + boxes + GAP // 2


def _room(room: Room, x: int, y: int, width: int, height: int) -> list[str]:
    name = room.name if room.name in WITHOUT_BOXES else f"{PACKAGE}/{room.name}"
    lines = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="{WALLS[room.name]}"'
        ' stroke="#cbd5e1" stroke-width="1.5"/>',
        f'<text x="{x + 14}" y="{y + 25}" font-weight="700" fill="#0f172a">{name}</text>',
    ]
    y += TITLE
    for says in _imports(room):
        lines.append(f'<text x="{x + 14}" y="{y + 11}" font-size="12" fill="#64748b">{escape(says)}</text>')
        y += LINE
    if room.name not in WITHOUT_BOXES:
        for row in reversed(room.rows):
            lines += _row(row, x + GAP, y + GAP // 2, width - 2 * GAP)
            y += BOX + GAP
    return lines


def _imports(room: Room) -> list[str]:
    """What it imports of other rooms, a line for each; without boxes a room is too narrow for more."""
    lines = []
    for name, parts in sorted(room.imports.items()):
        shown = [""] if room.name in WITHOUT_BOXES else [": ", ", ".join(sorted(parts))]
        lines.append("".join(["imports ", name, *shown]))
    return lines


def _row(row: Sequence[str], x: float, y: int, width: int) -> list[str]:
    each = (width - (len(row) - 1) * GAP) / len(row)
    lines = []
    for name in row:
        lines += [
            f'<rect x="{x:g}" y="{y}" width="{each:g}" height="{BOX}" rx="8" fill="#ffffff"'
            ' stroke="#334155" stroke-width="1.5"/>',
            f'<text x="{x + each / 2:g}" y="{y + 23}" text-anchor="middle" fill="#0f172a">{name}</text>',
        ]
        x += each + GAP
    return lines


if __name__ == "__main__":
    files.svg("house", drawn(rooms()))
