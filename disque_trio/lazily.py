"""Imports that wait until they are needed, for libraries that import more than we use.

``importlib.util.LazyLoader`` does the same, but only until another import names the module: that
reads its ``__spec__``, which loads it. Trio imports ``ssl`` twice.
"""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any

_loading = threading.RLock()


class _Waiting(ModuleType):
    """A module that is not loaded yet. Accessing an attribute that it lacks loads it."""

    def __getattr__(self, name: str) -> Any:
        with _loading:
            spec = self.__spec__
            assert spec is not None
            # While loading, attributes that the module reads exist or not, as in any module.
            if isinstance(spec.loader, _Later):
                spec.loader = self.__loader__ = spec.loader_state
                spec.loader.exec_module(self)
                self.__class__ = ModuleType  # type: ignore[assignment]
        return ModuleType.__getattribute__(self, name)


class _Later(LazyLoader):
    """Makes modules that another loader, in ``loader_state``, loads when they are needed."""

    def exec_module(self, module: ModuleType) -> None:
        module.__class__ = _Waiting


class _Finder:
    """Finds modules as usual, but makes the named ones wait."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in self._names else None
        if spec is not None and spec.loader is not None:
            spec.loader_state = spec.loader
            spec.loader = _Later(spec.loader)
        return spec


@contextmanager
def lazily(*names: str) -> Iterator[None]:
    """Within the block, importing one of the modules ``names`` (full names) does not load it.

    It is loaded when one of its attributes is first used, in the block or later. Do not use this
    for modules that may be missing, since that would only be noticed then.
    """
    finder = _Finder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
