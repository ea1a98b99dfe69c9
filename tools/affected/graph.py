"""What reaches what in a tree: modules and definitions by imports, programs and files by name.

A node of the graph is a path (a module of the package, a file that is not Python, a folder with a
slash at its end, or a test module as a whole), or a path and a definition, ``path::name``. An
``__init__.py`` of the package is two: as what importers of the package get, and ``path#own``, the
text of the file itself, which runs before each module of the package.
"""

import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import grimp

from tools.affected import rules
from tools.affected.names import Names, above, folder, module_name
from tools.affected.source import BODY, MAIN, Definition, Source, parse
from tools.workspace import distributions

# Where there are modules beside those of distributions.
_OURS = ("benchmarks/", "packages/", "tests/", "tools/")
SUPPORT = re.compile(r"(?:.+/)?tests/support/")
_BLOCK = re.compile(r"^```.*?^```|^ {4}[^\n]*$", re.MULTILINE | re.DOTALL)


def is_test(path: str) -> bool:
    """Whether it is a test module."""
    return bool(re.fullmatch(r"(?:.+/)?tests/(?:.+/)?test_\w+\.py", path))


class Graph:
    """The graph of a tree.

    Args:
        root: the top of the tree. paths: its files, relative to it. gone: files that a change has
            removed, which may still be named.
    """

    def __init__(self, root: Path, paths: Iterable[str], gone: Iterable[str] = ()) -> None:
        self._root = root
        self._paths = {*paths}
        houses = [*distributions(root)]
        self._packages = tuple(house.package for house in houses)
        self._homes = tuple(f"{(house.folder / house.package).as_posix()}/" for house in houses)
        python = [path for path in {*self._paths, *gone} if path.endswith(".py")]
        self._modules = {
            module_name(path): path
            for path in python
            if "/" not in path or path.startswith((*self._homes, *_OURS))
        }
        scripts = {name: call for house in houses for name, call in house.scripts.items()}
        self._names = Names({*self._paths, *gone}, self._modules, scripts)
        plugins = houses[0].project["project"].get("entry-points", {}).get("pytest11", {}).values()
        self._plugins = {
            path: self._parse(path)
            for path in map(self._modules.get, plugins)
            if path in self._paths
        }
        self._sources = {
            path: self._parse(path)
            for path in self._modules.values()
            if path in self._paths and not path.startswith(self._homes)
        }
        self._all_conftests = [one for one in self._sources if one.endswith("conftest.py")]
        self._users: dict[str, set[str]] = {}  # the edges, from what is used to what uses it
        self._pages: dict[str, set[str]] = {}  # as those, from a module to files with programs
        self._add_package()
        for path, source in self._sources.items():
            for name, definition in source.definitions.items():
                self._add_definition(path, source, name, definition)
        self._add_files({*self._paths, *gone})

    # ---- asking ---------------------------------------------------------------------------------

    def reached_from(self, paths: Iterable[str]) -> dict[str, list[str]]:
        """The test modules that a change of these files reaches, each with the way to a file."""
        via = dict.fromkeys(node for path in paths for node in self._nodes(path))
        self._follow([*via], via)
        found = {*filter(is_test, via)}
        pages = {page: node for node in [*via] for page in self._pages.get(node, ())}
        new = [page for page in pages if page not in via]
        via |= {page: pages[page] for page in new}
        self._follow(new, via)
        ran = {node for node in filter(is_test, via) if rules.matches(node, rules.RUNNING)}
        return {test: _way(test, via) for test in sorted(found | ran)}

    def _follow(self, waiting: list[str], via: dict[str, str | None]) -> None:
        for node in waiting:
            new = self._users.get(node, set()) - via.keys()
            via.update(dict.fromkeys(new, node))
            waiting.extend(new)

    @property
    def tests(self) -> list[str]:
        """All test modules."""
        return sorted(filter(is_test, self._paths))

    def is_read(self, path: str) -> bool:
        """Whether something imports or names the file, or names a folder that it is in."""
        folders = (f"{up}/" for up in above(path))
        return path in self._sources or any(
            self._users.get(node) for node in (*self._nodes(path), *folders) if node != f"{path}::"
        )

    def _nodes(self, path: str) -> list[str]:
        source = self._sources.get(path)
        nodes = [f"{path}::{name}" for name in source.definitions] if source else []
        if path not in self._paths and path.endswith(".py"):
            # grimp does not see who imports a module that is gone.
            inits = (f"{up}/__init__.py" for up in above(path))
            nodes += [f"{init}#own" for init in inits if init in self._paths][:1]
            if path.endswith("/conftest.py"):
                nodes += [test for test in self._sources if test.startswith(f"{folder(path)}/")]
        return [path, f"{path}#own", *nodes]

    # ---- the package ----------------------------------------------------------------------------

    def _add_package(self) -> None:
        before = sys.path[:]
        sys.path[:0] = [str((self._root / home).parent) for home in self._homes]
        importlib.invalidate_caches()
        try:
            imports = grimp.build_graph(
                *self._packages, exclude_type_checking_imports=True, cache_dir=None
            )
        finally:
            sys.path[:] = before
        for module in imports.modules & self._modules.keys():
            path = self._modules[module]
            for used in imports.find_modules_directly_imported_by(module):
                self._edge(path, self._modules.get(used, ""))
            for up in above(path):
                self._edge(path, f"{up}/__init__.py#own")
            if path in self._paths:
                self._add_named_in_package(path, module)

    def _add_named_in_package(self, path: str, module: str) -> None:
        """Add what a module starts as a program, or imports by a name that it puts together."""
        text = self._read(path)
        named = ("import_module", "{__name__}", *(f'"{name}.' for name in self._packages))
        if not any(one in text for one in named):
            return
        source = self._parse(path)
        strings = {text for one in source.definitions.values() for text in one.strings}
        for text in strings:
            for name in self._names.modules(text):
                for used in self._target(name):
                    self._edge(path, used)
        if "import_module" in source.imports:
            package = module if path.endswith("/__init__.py") else module.rpartition(".")[0]
            for text in strings:
                self._edge(path, self._modules.get(f"{package}.{text}", ""))

    # ---- tests and tools ------------------------------------------------------------------------

    def _add_definition(self, path: str, source: Source, name: str, found: Definition) -> None:
        node = f"{path}::{name}"
        self._edge(path, node)
        self._edge(node, f"{path}::{BODY}")
        if ("__name__",) in found.names and path not in rules.SERVES_OTHERS and name != MAIN:
            self._edge(node, path)  # it starts itself as a program
        for parts in found.names:
            for used in self._resolve(path, parts):
                self._edge(node, used)
        for fixture in found.fixtures:
            for used in self._fixture(path, fixture, name):
                self._edge(node, used)
        if not rules.matches(path, (*rules.NAMELESS, *rules.SERVES_OTHERS)):
            self._add_named(path, source, found, node)
        for used in (*rules.READ.get(path, ()), *rules.READ.get(node, ())):
            self._edge(node, used)
        if name == BODY and is_test(path):
            for conftest in self._conftests(path):
                for one, definition in self._sources[conftest].definitions.items():
                    if one == BODY or definition.everywhere:
                        self._edge(node, f"{conftest}::{one}")

    def _resolve(self, path: str, parts: tuple[str, ...]) -> Iterator[str]:
        """What a dotted name means in a module: definitions, or files."""
        source = self._sources[path]
        first, *rest = parts
        if first in source.definitions:
            yield f"{path}::{first}"
        if first in source.imports:
            yield from self._target(".".join((source.imports[first], *rest)))
        for star in source.stars:
            module = self._modules.get(star, "")
            if module in self._sources:
                yield from self._resolve(module, parts)
            elif module:
                yield module

    def _target(self, dotted: str) -> Iterator[str]:
        """The definition or file that a full name stands for, if it is of this tree."""
        parts = dotted.split(".")
        for count in range(len(parts), 0, -1):
            path = self._modules.get(".".join(parts[:count]))
            if path is not None:
                rest = tuple(parts[count:])
                inside = self._resolve(path, rest) if rest and path in self._sources else ()
                yield from [*inside] or [path]
                return

    def _conftests(self, path: str) -> list[str]:
        """The conftest.py files that apply to a module, from the nearest up."""
        places = (*(f"{up}/conftest.py" for up in above(path)), "conftest.py")
        return [one for one in places if one in self._sources]

    def _fixture(self, path: str, fixture: str, asking: str) -> Iterator[str]:
        """What a fixture means for a definition of a module; nothing if it is no fixture."""
        is_shared = bool(SUPPORT.match(path))  # used by any conftest.py
        for place in (path, *(self._all_conftests if is_shared else self._conftests(path))):
            if place == path and asking == fixture:
                continue  # it overrides one of the same name
            found = [*self._resolve(place, (fixture,))]
            yield from found
            if found and not is_shared:
                return
        yield from (path for path, one in self._plugins.items() if fixture in one.definitions)

    def _add_named(self, path: str, source: Source, found: Definition, node: str) -> None:
        for text in found.strings:
            for name in self._names.modules(text):
                for used in self._target(name):
                    self._edge(node, used)
        from_top = "ROOT" in source.imports or "ROOT" in source.definitions
        by_caller = rules.NAMED_BY_CALLERS.get(path)
        pages = next(iter(rules.NAMED_BY_CALLERS.values())).rstrip("/")
        for text in found.strings:
            for used in self._names.files(text, folder(path), pages, from_top=from_top):
                self._edge(node, used)
        for base, rest in found.paths:
            if base == "ROOT" or "parents[" in base:
                for used in self._names.path(rest):
                    is_own = used.endswith("/") and path.startswith(used)
                    self._edge(node, "" if is_own or used == by_caller else used)

    # ---- files ----------------------------------------------------------------------------------

    def _add_files(self, paths: set[str]) -> None:
        for path in paths:
            for up in above(path):
                self._edge(f"{up}/", path)
        for path in paths - {*self._modules.values()}:
            if path in self._paths and rules.matches(path, rules.PROGRAMS):
                self._add_programs(path)
            if path.startswith((*self._homes, *_OURS)):
                self._add_data(path)

    def _add_data(self, path: str) -> None:
        """Take a file that is nobody's by name for one that all modules beside it read, or those
        of the nearest folder above it that has any."""
        if not path.startswith(self._homes) and path in self._users:
            return
        for up in above(path):
            beside = [module for module in self._modules.values() if folder(module) == up]
            for module in beside:
                self._edge(module, path)
            if beside:
                return

    def _add_programs(self, path: str) -> None:
        """Add what the programs in a file use: all of it, or the blocks of code of a page."""
        try:
            text = self._read(path)
        except UnicodeDecodeError:
            return  # a picture
        if path.endswith(".md"):
            text = re.sub(r"^ {4}", "", "\n".join(_BLOCK.findall(text)), flags=re.MULTILINE)
        for name in self._names.modules(text):
            for used in self._target(name):
                if not rules.matches(used, rules.LONG):
                    self._pages.setdefault(used, set()).add(path)

    # ---- helpers --------------------------------------------------------------------------------

    def _edge(self, user: str, used: str) -> None:
        if used and user != used:
            self._users.setdefault(used, set()).add(user)

    def _read(self, path: str) -> str:
        return (self._root / path).read_text(encoding="utf-8")

    def _parse(self, path: str) -> Source:
        return _parsed(self._read(path), module_name(path), path.endswith("/__init__.py"))


_parsed = lru_cache(maxsize=4096)(parse)


def _way(test: str, via: dict[str, str | None]) -> list[str]:
    """The nodes from a test to a changed file."""
    way = [test]
    while (node := via[way[-1]]) is not None:
        way.append(node)
    return way
