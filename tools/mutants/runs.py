"""Runs the tests that reach a mutation, with the mutation switched on.

All chosen mutations are woven into their modules as these are imported, each behind a switch that
notes that it was passed. pytest collects and runs the tests once, without any mutation: then it is
known which tests reach which mutation, and how long each takes. For each mutation, this process
forks; the child switches the mutation on, runs the tests that reach it, the fastest first, and ends
with the first failure. It imports and collects nothing.
"""

import faulthandler
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import pytest

from tools.mutants.mutations import AT, Mutation, woven

# A test that takes this many times as long as without a mutation, and this much more, is taken to
# run or to wait forever.
SLOWER = 10
MORE_CPU = 1.0  # s of CPU time
MORE_WAIT = 20.0  # s

# In the same order and with the same examples each time.
OPTIONS = ["-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:randomly", "--hypothesis-seed=0"]

KILLED = "killed"
SURVIVED = "survived"
AT_IMPORT = "at import"  # it ran before the first test, and cannot be switched on


class Result(NamedTuple):
    """What became of ``mutation``: KILLED to AT_IMPORT, and how many tests reach it."""

    mutation: Mutation
    fate: str
    tests: int


class Switch:
    """Says whether a mutation is on.

    Attributes:
        on: the mutation that is; -1: none.
        passed: the mutations that were asked for.
    """

    def __init__(self) -> None:
        self.on = -1
        self.passed: set[int] = set()

    def at(self, mutation: int) -> bool:
        """Whether ``mutation`` is on."""
        self.passed.add(mutation)
        return mutation == self.on


class _Loader(SourceFileLoader):
    """Loads a module with mutations, and never from compiled bytecode."""

    def __init__(self, name: str, path: str, chosen: Mapping[int, int], switch: Switch) -> None:
        super().__init__(name, path)
        self._chosen = chosen
        self._switch = switch

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile(woven(Path(path).read_text(), self._chosen), path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, AT, self._switch.at)
        super().exec_module(module)


class _Finder(MetaPathFinder):
    """Finds the modules that have mutations: ``chosen`` by file."""

    def __init__(self, chosen: Mapping[Path, Mapping[int, int]], switch: Switch) -> None:
        self._chosen = chosen
        self._switch = switch

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        chosen = self._chosen.get(Path(spec.origin)) if spec and spec.origin else None
        if spec is None or spec.origin is None or chosen is None:
            return None
        spec.loader = _Loader(fullname, spec.origin, chosen, self._switch)
        return spec


class _Reached(NamedTuple):
    """A test that reaches mutations, and how long it takes: CPU time and real time, in s."""

    item: pytest.Item
    cpu: float
    wait: float


class Runner:
    """A plugin for pytest that runs the tests for each of ``mutations``.

    Args:
        jobs: how many mutations at a time.
        tell: called with each result.

    Attributes:
        broken: the tests that fail without a mutation, and are left out.
        number_of_tests: the others.
    """

    def __init__(
        self, mutations: Sequence[Mutation], jobs: int, tell: Callable[[Result], None]
    ) -> None:
        self.broken: list[str] = []
        self.number_of_tests = 0
        self._mutations = mutations
        self._jobs = jobs
        self._tell = tell
        self._switch = Switch()
        self._failed = False
        self._reached: dict[int, list[_Reached]] = {n: [] for n in range(len(mutations))}
        chosen: dict[Path, dict[int, int]] = {}
        for n, mutation in enumerate(mutations):
            chosen.setdefault(Path(mutation.file).resolve(), {})[mutation.number] = n
        self._finder = _Finder(chosen, self._switch)

    # ---- hooks ------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        """Come before the finder of pytest, and before anything is imported."""
        sys.meta_path.insert(0, self._finder)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests without and with mutations."""
        sys.meta_path.remove(self._finder)
        at_import = set(self._switch.passed)
        for item, following in _in_order(session.items):
            self._run_plain(item, following)
        for n in at_import:
            self._tell(Result(self._mutations[n], AT_IMPORT, 0))
        self._run_mutants([n for n in self._reached if n not in at_import])
        return True

    # ---- tests ------------------------------------------------------------------------------

    def _passes(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        """Run a test; ``following`` is the next one. Return whether it did not fail."""
        self._failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return not self._failed

    def _run_plain(self, item: pytest.Item, following: pytest.Item | None) -> None:
        """Run a test without a mutation, and note what it reaches."""
        self._switch.passed.clear()
        cpu, start = time.process_time(), time.monotonic()
        if not self._passes(item, following):
            self.broken.append(item.nodeid)
            return
        self.number_of_tests += 1
        found = _Reached(item, time.process_time() - cpu, time.monotonic() - start)
        for n in self._switch.passed:
            self._reached[n].append(found)

    def _run_mutants(self, waiting: list[int]) -> None:
        """Run the tests with each of these mutations."""
        running: dict[int, tuple[int, int]] = {}  # by descriptor: mutation and process
        waiting.reverse()
        try:
            while waiting or running:
                while waiting and len(running) < self._jobs:
                    n = waiting.pop()
                    pid = self._start(n)
                    running[os.pidfd_open(pid)] = n, pid
                for fd in select.select([*running], [], [])[0]:
                    n, pid = running.pop(fd)
                    os.close(fd)
                    fate = SURVIVED if _end(pid) == 0 else KILLED
                    self._tell(Result(self._mutations[n], fate, len(self._reached[n])))
        finally:
            for _, pid in running.values():
                _end(pid)

    def _start(self, n: int) -> int:
        """Fork, and run the tests with the mutation ``n``; return the id of the child."""
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()  # so that it is ended together with whatever the tests start
            self._switch.on = n
            os._exit(0 if self._all_pass(self._reached[n]) else 1)
        finally:
            os._exit(1)

    def _all_pass(self, reached: list[_Reached]) -> bool:
        """Run these tests, the fastest first, until one fails; end this process if one takes too
        long."""
        fastest = sorted(reached, key=lambda one: one.cpu)
        items = [one.item for one in fastest]
        with Path(os.devnull).open("w") as nowhere:
            for one, (item, following) in zip(fastest, _in_order(items), strict=True):
                # Both end the process even in a loop that catches everything.
                signal.setitimer(signal.ITIMER_PROF, one.cpu * SLOWER + MORE_CPU)
                limit = one.wait * SLOWER + MORE_WAIT
                faulthandler.dump_traceback_later(limit, file=nowhere, exit=True)
                if not self._passes(item, following):
                    return False
        return True


def _in_order(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Each of ``items`` with the one that follows."""
    return zip(items, [*items[1:], None], strict=True)


def _end(pid: int) -> int:
    """End the child ``pid``, if it has not, and all that it started; return its exit status, or
    minus a signal."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(
    mutations: Sequence[Mutation],
    tests: Sequence[str],
    jobs: int,
    tell: Callable[[Result], None],
    output: Any,
) -> Runner:
    """Run the ``tests`` (paths) that reach each of ``mutations``, and ``tell`` the results. What
    pytest prints goes to the file ``output``. Ctrl-C ends it early. Raises ``RuntimeError`` if
    pytest cannot run."""
    runner = Runner(mutations, jobs, tell)
    before = [os.dup(1), os.dup(2)]
    try:
        for fd in (1, 2):
            os.dup2(output.fileno(), fd)
        status = pytest.main([*OPTIONS, *tests], plugins=[runner])
    finally:
        for fd, copy in zip((1, 2), before, strict=True):
            os.dup2(copy, fd)
            os.close(copy)
    codes = pytest.ExitCode
    if status not in (codes.OK, codes.TESTS_FAILED, codes.INTERRUPTED):
        raise RuntimeError(f"pytest ended with status {status}")
    return runner
