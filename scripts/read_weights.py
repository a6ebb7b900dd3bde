"""How the ways in which vLLM's loaders read files compare on a local disk, without a GPU.

    .venv/bin/python scripts/read_weights.py DIR

Writes four files of 1 GiB into DIR and leaves them there. Prints the rows of docs/loaders.md: the default
(mapped, copied piece by piece), the same with `--safetensors-load-strategy prefetch` (threads read the files
meanwhile), and direct, as fastsafetensors and InstantTensor open them; each is the median of three.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from threading import Thread

FILES, SIZE = 4, 1 << 30
"""As a checkpoint of 8 billion parameters is cut, each a quarter as large."""

PIECE = 16 << 20
"""What vLLM's prefetching reads at once; a layer's weights are about as large."""

ROUNDS = 3


def _written(folder: Path) -> list[Path]:
    paths = [folder / f"weights-{number}" for number in range(FILES)]
    for path in paths:
        if not path.exists() or path.stat().st_size != SIZE:
            with path.open("wb") as file:
                for _ in range(SIZE // PIECE):
                    file.write(os.urandom(PIECE))
                file.flush()
                os.fsync(file.fileno())
    return paths


def _forget(paths: Sequence[Path]) -> None:
    """Out of the page cache with them."""
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _mapped(paths: Sequence[Path]) -> None:
    into = memoryview(bytearray(PIECE))
    for path in paths:
        with (
            path.open("rb") as file,
            closing(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)) as mapped,
            memoryview(mapped) as view,
        ):
            for start in range(0, SIZE, PIECE):
                into[:] = view[start : start + PIECE]


def _read(path: Path) -> None:
    with path.open("rb") as file:
        while file.read(PIECE):
            pass


def _prefetched(paths: Sequence[Path]) -> None:
    threads = [Thread(target=_read, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    _mapped(paths)
    for thread in threads:
        thread.join()


def _direct(paths: Sequence[Path]) -> None:
    into = mmap.mmap(-1, PIECE)  # aligned, as O_DIRECT asks
    for path in paths:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        while os.readv(file, [into]):
            pass
        os.close(file)


def _seconds(way: Callable[[Sequence[Path]], None], paths: Sequence[Path], *, is_cold: bool) -> float:
    taken = []
    for _ in range(ROUNDS):
        if is_cold:
            _forget(paths)
        else:
            for path in paths:
                _read(path)
        began = time.monotonic()
        way(paths)
        taken.append(time.monotonic() - began)
    return median(taken)


def main(arguments: list[str]) -> int:
    """Print the rows."""
    if len(arguments) != 1:
        print(__doc__)
        return 2
    paths = _written(Path(arguments[0]))
    for name, way in (("default", _mapped), ("`prefetch`", _prefetched), ("direct", _direct)):
        cold, warm = (_seconds(way, paths, is_cold=is_cold) for is_cold in (True, False))
        print(f"| {name} | {cold:.1f} | {warm:.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
