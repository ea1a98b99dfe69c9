"""What the strings in a tree name: modules, console scripts and files."""

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from tools.affected import rules

_IMPORT = re.compile(r"\bfrom +([\w.]+) +import +\(?([\w, \n]+)")
# A distribution's modules are found without its folder, its tests with it.
_PACKAGED = re.compile(r"^packages/[^/]+/(?!tests/)")
_LONGEST = 200  # characters of a string that may be a path


def module_name(path: str) -> str:
    """The full name of the module in a file."""
    path = _PACKAGED.sub("", path)
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def folder(path: str) -> str:
    """The folder that a file is in; empty at the top."""
    return path.rpartition("/")[0]


def above(path: str) -> list[str]:
    """The folders that a file is in, from the nearest up, without the top."""
    return [str(up) for up in PurePosixPath(path).parents][:-1]


class Names:
    """Finds names in strings.

    Args:
        paths: the files of the tree. modules: those that can be imported, by full name.
        scripts: the modules of console scripts.
    """

    def __init__(
        self, paths: Iterable[str], modules: Mapping[str, str], scripts: Mapping[str, str]
    ) -> None:
        self._paths = {*paths}
        self._folders = {up for path in self._paths for up in above(path)}
        self._top = [path for path in self._paths if "/" not in path]
        self._modules = modules
        self._scripts = [
            (name, _command(name), scripts[name].partition(":")[0]) for name in scripts
        ]
        roots = "|".join(sorted({name.partition(".")[0] for name in modules}))
        self._module = re.compile(rf"(?<![\w./])(?:{roots})(?:\.\w+)+")

    def modules(self, text: str) -> Iterator[str]:
        """Full names of modules, or of what is in them: for ``python -m``, in a program, or to be
        patched. What an f-string ends is all that it can be."""
        names = {*self._module.findall(text)} if "." in text else set()
        if "import" in text:
            for origin, imported in _IMPORT.findall(text):
                names |= {f"{origin}.{name}" for name in re.findall(r"\w+", imported)}
        for name in names:
            yield name
            if f"{name}.__main__" in self._modules:
                yield f"{name}.__main__"
            if f"{name}.apps" in self._modules:  # Django loads these of an app
                yield f"{name}.apps"
                yield from (one for one in self._modules if one.startswith(f"{name}.management."))
            if f"{name}.{{}}" in text:
                yield from (one for one in self._modules if one.startswith(f"{name}."))
        for name, command, module in self._scripts:
            if name in text and command.search(text):
                yield module

    def path(self, text: str) -> Iterator[str]:
        """The file, the folder (with a slash at its end) or the matching files that a path from
        the top names."""
        text = text.removeprefix("./").rstrip("/")
        if text == rules.HOUSES:
            return
        if text in self._paths:
            yield text
        elif text in self._folders:
            yield f"{text}/"
        elif re.match(r"[*\w-]*\.\w+$", text):
            yield from fnmatch.filter(self._top, text)
        elif "/" in text and "*" in text:
            start = folder(text.partition("*")[0])
            if start in self._folders:
                yield f"{start}/"

    def files(self, text: str, here: str, pages: str, *, from_top: bool) -> Iterator[str]:
        """The files that a string may name.

        Args:
            here: the folder of the module with the string. pages: another folder whose files may
                be named without it. from_top: whether the module knows the top of the tree, so
                that one word may be a file there.
        """
        if not text or len(text) > _LONGEST or "\n" in text:
            return
        if "/" in text[:-1] or (from_top and "." in text) or (from_top and text in self._top):
            yield from self.path(text)
        for place in (here, pages):
            if f"{place}/{text}" in self._paths:
                yield f"{place}/{text}"
        if f"{here}/{text}" in self._folders:
            yield f"{here}/{text}/"


def _command(name: str) -> re.Pattern[str]:
    """Finds a command in a text. A plain word is one only where a shell would look for it."""
    before = r"(?<![\w.-])" if "-" in name else r"(?:^|[|;&(/] *|\$ +)"
    after = r"(?![\w.-])" if "-" in name else r"(?= +[\w-])"
    return re.compile(f"{before}{re.escape(name)}{after}", re.MULTILINE)
