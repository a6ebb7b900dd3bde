"""Has a mutant's source imported in place of its module."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from tests.mutants.mutant import Mutant
from tests.mutants.sites import path_of


def install(mutant: Mutant) -> None:
    """From now on `import` finds the mutant.

    Raises:
        RuntimeError: the package is imported already, and would stay what it is.
    """
    if any(name.split(".")[0] == "spotrelay" for name in sys.modules):
        raise RuntimeError("spotrelay is imported already: a mutant must be installed before")
    sys.meta_path.insert(0, _Finder(mutant.module, mutant.source))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module only."""

    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The mutant's, or nothing to say."""
        if fullname != self._module:
            return None
        return importlib.util.spec_from_loader(fullname, _Loader(fullname, self._source))


class _Loader(importlib.machinery.SourceFileLoader):
    """The file's loader but for its text, so that the files beside it are found as ever."""

    def __init__(self, module: str, source: str) -> None:
        super().__init__(module, str(path_of(module)))
        self._source = source

    def get_data(self, path: str) -> bytes:
        """The mutated source."""
        return self._source.encode() if path == self.path else super().get_data(path)

    def path_stats(self, path: str) -> NoReturn:
        """Without an age no bytecode is read or written, which would be the file's."""
        raise OSError(path)
