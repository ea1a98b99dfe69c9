"""What would have been selected for the commits of the past, and whether it was enough."""

import json
import re
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.affected.changes import Changes, between, git
from tools.affected.graph import Graph, is_test
from tools.affected.names import folder
from tools.affected.selection import Selection, graph_of, select

_OF_TESTS = re.compile(r"(?:.+/)?tests/")


@dataclass
class Costs:
    """The test cases of each file, and their CPU seconds. A file that is not there any more costs
    as much as the mean of those in its folder."""

    cases: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @classmethod
    def read(cls, paths: Iterable[Path]) -> "Costs":
        """From lines of JSON: an ``id`` of pytest, and ``cpu``."""
        costs = cls()
        for path in paths:
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                if "id" in entry:
                    file = entry["id"].partition("::")[0]
                    costs.cases[file] += 1
                    costs.seconds[file] += entry["cpu"]
        return costs

    def of(self, tests: Iterable[str], what: Mapping[str, float]) -> float:
        """The sum for these test files."""
        return sum(what[test] if test in what else self._usual(test, what) for test in tests)

    def _usual(self, test: str, what: Mapping[str, float]) -> float:
        return statistics.mean([what[one] for one in what if folder(one) == folder(test)] or [0])


def measure(root: Path, count: int, durations: Iterable[Path]) -> Iterator[str]:
    """Lines about the selections for the last commits that are no merges."""
    costs = Costs.read(durations)
    shares: list[float] = []
    seconds: list[float] = []
    missed: list[bool] = []
    for commit, tree, changes in _past(root, count):
        graph = graph_of(tree, changes)
        found = select(tree, changes, graph)
        shares.append(_share(costs, found))
        seconds.append(costs.of(found.ways, costs.seconds))
        lost = None if graph is None else _missed(tree, changes, graph)
        if lost is not None:
            missed.append(bool(lost))
        notes = " ".join([*found.reasons, *(f"misses {test}" for test in lost or ())])
        yield f"{commit[:10]} {shares[-1]:6.1%} {seconds[-1]:7.1f} s {notes}".rstrip()
    for name, values, form in (("test cases", shares, ".1%"), ("CPU seconds", seconds, ".1f")):
        mean, median = statistics.mean(values), statistics.median(values)
        yield f"{name}: mean {mean:{form}}, median {median:{form}}"
    yield (
        f"commits whose sources do not reach a test file that they change: {sum(missed)}, of "
        f"{len(missed)} that change both"
    )


def _past(root: Path, count: int) -> Iterator[tuple[str, Path, Changes]]:
    commits = git(root, "rev-list", "--no-merges", f"--max-count={count}", "HEAD").split()
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory, "tree")
        git(root, "worktree", "add", "--quiet", "--detach", str(tree), commits[0])
        try:
            for commit in commits:
                git(tree, "checkout", "--quiet", "--detach", commit)
                yield commit, tree, between(tree, f"{commit}~1", commit)
        finally:
            git(root, "worktree", "remove", "--force", str(tree))


def _share(costs: Costs, found: Selection) -> float:
    if not costs.cases:
        return len(found.ways) / len(found.all)
    return costs.of(found.ways, costs.cases) / costs.of(found.all, costs.cases)


def _missed(tree: Path, changes: Changes, graph: Graph) -> list[str] | None:
    """The test files that the commit changed and its other files do not reach; None if it changed
    only tests, or none."""
    sources = [path for path in changes.all if not _OF_TESTS.match(path)]
    tests = [path for path in changes.kept if is_test(path)]
    if not sources or not tests:
        return None
    rest = Changes(
        changes.since, changes.kept.intersection(sources), changes.gone.intersection(sources)
    )
    found = select(tree, rest, graph)
    return [test for test in tests if test not in found.ways]
