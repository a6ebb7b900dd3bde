"""Where pictures are put, and how small they are."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from lab.demo.settings import ROOT

IMAGES = ROOT / "docs" / "images"

COLORS = 128
"""Of a picture of a page: nobody sees a difference, and its file is a third as large."""


def png(name: str, content: bytes) -> Path:
    """Write a browser's picture."""
    path = IMAGES / f"{name}.png"
    with Image.open(io.BytesIO(content)) as image:
        image.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)
    return path


def svg(name: str, content: str) -> Path:
    """Write a drawing."""
    path = IMAGES / f"{name}.svg"
    path.write_text(content, encoding="utf-8")
    return path
