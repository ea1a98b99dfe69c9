"""Many runs: distributes seeds to processes, and reports the runs that failed."""

import gc
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context

from tests.simulator.plan import make_plan, mode_of
from tests.simulator.world import Outcome, World

CHUNK = 10


@dataclass(slots=True)
class Summary:
    """The result of a run, small enough to pass between processes.

    Attributes:
        problems: texts; empty: all is well.
    """

    seed: int
    mode: str
    problems: list[str]
    jobs: int
    confirmed: int
    delivered: int
    again: int
    events: int
    virtual: int


def simulate(
    seed: int,
    mode: str = "any",
    membership: str = "any",
    trace: bool = False,
    spoil: Callable[[World], None] | None = None,
) -> Outcome:
    """Run once. ``spoil`` may break the cluster before the run begins."""
    if mode == "any":
        mode = mode_of(seed)
    world = World(make_plan(seed, mode, membership), trace)
    if spoil is not None:
        spoil(world)
    return world.run()


def command(seed: int, mode: str, membership: str) -> str:
    """The command that repeats a run and shows what happened."""
    words = [".venv/bin/python -m tools.simulate --seed", str(seed)]
    if mode != "any":
        words += ["--mode", mode]
    if membership != "any":
        words += ["--membership", membership]
    return " ".join(words)


def _summary(task: tuple[int, str, str]) -> Summary:
    collects = gc.isenabled()
    gc.disable()
    try:
        return _of_outcome(task)
    finally:
        gc.collect()  # the world, all at once
        if collects:
            gc.enable()


def _of_outcome(task: tuple[int, str, str]) -> Summary:
    seed, mode, membership = task
    outcome = simulate(seed, mode, membership)
    return Summary(
        seed,
        mode_of(seed) if mode == "any" else mode,
        [problem.text for problem in outcome.problems],
        outcome.jobs,
        outcome.confirmed,
        outcome.delivered,
        outcome.again,
        outcome.events,
        outcome.virtual,
    )


def campaign(
    seeds: Iterable[int], jobs: int, mode: str = "any", membership: str = "any"
) -> Iterator[Summary]:
    """Run ``seeds`` in ``jobs`` processes; yield the results as they come, in the order of the
    seeds."""
    tasks = ((seed, mode, membership) for seed in seeds)
    if jobs == 1:
        # Each run ends with a collection, which need not look through all that the process has.
        gc.collect()
        gc.freeze()
        yield from map(_summary, tasks)
        return
    with get_context("spawn").Pool(jobs, initializer=_begin) as pool:
        yield from pool.imap(_summary, tasks, CHUNK)
        pool.close()
        pool.join()


def _begin() -> None:
    warnings.simplefilter("error")
    gc.freeze()


def report(summary: Summary, mode: str, membership: str) -> str:
    """The report about a run that failed."""
    problems = "\n".join(f"    {problem}" for problem in summary.problems[:8])
    return (
        f"seed {summary.seed} ({summary.mode}):\n{problems}\n"
        f"  repeat: {command(summary.seed, mode, membership)}"
    )
