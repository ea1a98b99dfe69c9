"""From what has changed to the tests to run."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grimp.exceptions import SourceSyntaxError

from tools.affected import rules
from tools.affected.changes import Changes, files, git
from tools.affected.graph import Graph, is_test
from tools.affected.names import folder


@dataclass(frozen=True)
class Selection:
    """The tests to run.

    Args:
        ways: the selected test modules, each with how it reaches a changed file; empty for those
            that are selected with everything. all: all test modules. reasons: why everything is
            selected, if it is.
    """

    ways: Mapping[str, Sequence[str]]
    all: Sequence[str]
    reasons: Sequence[str] = ()

    def report(self) -> list[str]:
        """Lines for people: what is selected, and what is left out, by folder."""
        whole = Counter(map(folder, self.all))
        chosen = Counter(map(folder, self.ways))
        counts = (f"{name} {_count(chosen[name], whole[name])}" for name in sorted(chosen))
        left = (
            f"{name} {n - chosen[name]}" for name, n in sorted(whole.items()) if n > chosen[name]
        )
        lines = [*self.reasons, f"selected, of {len(self.all)} test files: {len(self.ways)}"]
        lines += _folded(counts)
        if len(self.ways) < len(self.all):
            lines += [f"left out: {len(self.all) - len(self.ways)}", *_folded(left)]
        return lines

    def among(self, words: Sequence[str]) -> list[str]:
        """The selected files that pytest would run with these arguments: files, folders and
        ``--ignore=``."""
        ignored = [word.partition("=")[2] for word in words if word.startswith("--ignore=")]
        within = [word for word in words if not word.startswith("-")]
        return [
            test for test in self.ways if _is_below(test, within) and not _is_below(test, ignored)
        ]


def graph_of(root: Path, changes: Changes) -> Graph | None:
    """The graph of a checkout, which also knows what the changes have removed; None: a module
    cannot be parsed."""
    try:
        return Graph(root, files(root), changes.gone)
    except (SyntaxError, SourceSyntaxError):
        return None


def select(root: Path, changes: Changes, graph: Graph | None) -> Selection:
    """The tests that the changes in a checkout reach, or all, if that cannot be told."""
    if graph is None:
        tests = sorted(filter(is_test, files(root)))
        return Selection(
            dict.fromkeys(tests, ()), tests, ["everything, as a module cannot be parsed"]
        )
    reasons = [
        f"everything, as all tests may depend on {path}"
        for path in sorted(changes.all)
        if rules.matches(path, rules.EVERYTHING) or _is_environment(root, changes.since, path)
    ]
    reasons += [
        f"everything, as nothing tells which tests read {path}"
        for path in sorted(changes.all)
        if not graph.is_read(path) and not rules.matches(path, rules.UNTESTED)
    ]
    if reasons:
        return Selection(dict.fromkeys(graph.tests, ()), graph.tests, reasons)
    return Selection(graph.reached_from(changes.all), graph.tests)


def _is_environment(root: Path, since: str, path: str) -> bool:
    if not rules.matches(path, rules.PROJECTS):
        return False
    if not git(root, "ls-tree", since, path) or not (root / path).exists():
        return True
    before = git(root, "show", f"{since}:{path}")
    return rules.changes_environment(before, (root / path).read_text(encoding="utf-8"))


def _is_below(test: str, places: Iterable[str]) -> bool:
    return any(test == place or test.startswith(f"{place}/") for place in places)


def _count(chosen: int, whole: int) -> str:
    return f"{chosen} of {whole}" if chosen < whole else str(whole)


def _folded(words: Iterable[str], width: int = 100) -> list[str]:
    """The words in indented lines, with commas."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += f", {word}" if lines[-1] else f"  {word}"
    return lines if lines[-1] else []
