"""Imports that wait until somebody needs them, for libraries that import more than we use."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType


class _Finder:
    """Finds modules as ever, but those that are named load with the first use of an attribute."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in self._names else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def lazily(*names: str) -> Iterator[None]:
    """Within the block an import of one of the modules ``names`` (full names) does not load it:
    it loads when an attribute of it is first used, in the block or later.

    Not for modules that may be missing: that would only be found out then.
    """
    finder = _Finder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
