"""Has a mutant's source imported in place of its module."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

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


class _Loader(importlib.abc.SourceLoader):
    """A source that is in no file. It reads and writes no bytecode, since it doesn't know how old it is."""

    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._source = source

    def get_filename(self, fullname: str) -> str:
        """Where the module is that it stands in for."""
        return str(path_of(self._module))

    def get_data(self, path: str) -> bytes:
        """The mutated source."""
        return self._source.encode()
