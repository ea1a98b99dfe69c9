"""Runs the tests that reach a mutation, with the mutation switched on.

All chosen mutations are woven into their modules as these are imported, each behind a switch that
notes that it was passed. pytest collects and runs the tests once, without any mutation: then it is
known which tests reach which mutation, and how long each takes. For each mutation, this process
forks; the child switches the mutation on, runs the tests that reach it, the fastest first, and ends
with the first failure. It imports and collects nothing.

Not every failure is due to the mutation: a test may fail because it runs in another process than
collected it, or for the second time, or because of a file or a port that something else has taken.
So the test that failed runs twice more, each time in a new fork and alone: it kills the mutation if
it fails again with it, and passes without it. Otherwise it is left out and named.
"""

import faulthandler
import gc
import mmap
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
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
MORE_MEMORY = 1 << 30  # bytes beyond the most that all tests needed without a mutation

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


NONE = -1  # in the place of a mutation


class Switch:
    """Says whether a mutation is on.

    Attributes:
        on: the mutation that is, or NONE.
        passed: the mutations that were asked for.
    """

    def __init__(self) -> None:
        self.on = NONE
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


class _Task(NamedTuple):
    """What a fork is to do: run ``tests`` in this order with ``mutation``, or NONE."""

    mutation: int
    tests: list[_Reached]


# Decides about a mutation: yields tasks, is sent the test that failed, and returns the fate.
_Trial = Generator[_Task, _Reached | None, str]


class _Fork:
    """A child process that runs the tests of ``task``, until one fails.

    Attributes:
        fd: can be read from when it has ended.
    """

    def __init__(self, task: _Task, run: Callable[[_Task, mmap.mmap], None]) -> None:
        self._task = task
        self._at = mmap.mmap(-1, 4)  # the number of the test that runs; shared with the child
        self._pid = os.fork()
        if not self._pid:
            try:
                os.setsid()  # so that it is ended together with whatever the tests start
                run(task, self._at)
                os._exit(0)
            finally:
                os._exit(1)
        self.fd = os.pidfd_open(self._pid)

    def end(self) -> _Reached | None:
        """End it, if it has not, and all that it started; return the test that failed."""
        os.close(self.fd)
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        at = int.from_bytes(self._at[:], "little")
        self._at.close()
        return self._task.tests[at] if status else None


class Runner:
    """A plugin for pytest that runs the tests for each of ``mutations``.

    Args:
        jobs: how many mutations at a time.
        tell: called with each result.

    Attributes:
        broken: the tests that fail without a mutation, and are left out.
        repeated: those that pass, but fail when they run once more in a fork; left out as well.
        by_chance: the tests that failed with a mutation once, but not when they ran alone, and the
            mutation. They do not count as having failed.
        number_of_tests: those that pass.
    """

    def __init__(
        self, mutations: Sequence[Mutation], jobs: int, tell: Callable[[Result], None]
    ) -> None:
        self.broken: list[str] = []
        self.repeated: dict[str, None] = {}
        self.by_chance: list[tuple[str, Mutation]] = []
        self.number_of_tests = 0
        self._mutations = mutations
        self._jobs = jobs
        self._tell = tell
        self._switch = Switch()
        self._failed = False
        self._sound: set[str] = set()  # they pass alone in a fork
        self._memory = 0
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
        self._memory = _most_memory() + MORE_MEMORY
        # To look for garbage in what is there would copy all of it in each fork, at the cost of the
        # test that happens to run.
        gc.freeze()
        trials = ((n, self._trial(n)) for n in waiting)
        running: dict[int, tuple[int, _Trial, _Fork]] = {}
        try:
            while True:
                while len(running) < self._jobs and (found := next(trials, None)):
                    self._go_on(*found, None, running)
                if not running:
                    return
                for fd in select.select([*running], [], [])[0]:
                    n, trial, fork = running.pop(fd)
                    self._go_on(n, trial, fork.end(), running)
        finally:
            for _, _, fork in running.values():
                fork.end()

    def _go_on(
        self,
        n: int,
        trial: _Trial,
        failed: _Reached | None,
        running: dict[int, tuple[int, _Trial, _Fork]],
    ) -> None:
        """Start the next task of the ``trial`` of the mutation ``n``, or tell how it ended.
        ``failed``: the test that failed in the last task."""
        try:
            fork = _Fork(trial.send(failed), self._run_task)
        except StopIteration as end:
            self._tell(Result(self._mutations[n], end.value, len(self._reached[n])))
        else:
            running[fork.fd] = n, trial, fork

    def _trial(self, n: int) -> _Trial:
        """Decide whether tests notice the mutation ``n``."""
        left = sorted(self._reached[n], key=lambda one: one.cpu)
        while left := [one for one in left if one.item.nodeid not in self.repeated]:
            failed = yield _Task(n, left)
            if failed is None:
                return SURVIVED
            name = failed.item.nodeid
            left = left[left.index(failed) + 1 :]
            if name not in self._sound and (yield _Task(NONE, [failed])):
                self.repeated[name] = None
                continue
            self._sound.add(name)
            if (yield _Task(n, [failed])):
                return KILLED
            self.by_chance.append((name, self._mutations[n]))
        return SURVIVED

    def _run_task(self, task: _Task, at: mmap.mmap) -> None:
        """Run the tests of ``task`` in this process, until one fails or takes too long, which ends
        the process; ``at`` becomes the number of the test that runs."""
        resource.setrlimit(resource.RLIMIT_AS, (self._memory, self._memory))
        self._switch.on = task.mutation
        items = [one.item for one in task.tests]
        with Path(os.devnull).open("w") as nowhere:
            for number, (item, following) in enumerate(_in_order(items)):
                at[:] = number.to_bytes(4, "little")
                one = task.tests[number]
                # Both end the process even in a loop that catches everything.
                signal.setitimer(signal.ITIMER_PROF, one.cpu * SLOWER + MORE_CPU)
                limit = one.wait * SLOWER + MORE_WAIT
                faulthandler.dump_traceback_later(limit, file=nowhere, exit=True)
                if not self._passes(item, following):
                    os._exit(1)


def _most_memory() -> int:
    """The most bytes of address space that this process has had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmPeak:"))


def _in_order(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Each of ``items`` with the one that follows."""
    return zip(items, [*items[1:], None], strict=True)


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
