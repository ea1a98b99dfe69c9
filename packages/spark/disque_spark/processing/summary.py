"""Counts what a run has done."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Partition:
    """What a task has done; with several rounds, all tasks with the same number.

    Attributes:
        partition: the number.
        done: jobs acknowledged.
        failed: jobs handed back, including those that became dead letters.
        dead: jobs that became dead letters.
        results: results sent.
        seconds: the time it took.
    """

    partition: int
    done: int
    failed: int
    dead: int
    results: int
    seconds: float


@dataclass(frozen=True)
class Summary:
    """What a run has done. Does not count the work of tasks that died.

    Attributes:
        done, failed, dead, results: sums of those of ``partitions``.
        seconds: the time the run took, including its start and restarts.
        partitions: one for each number of tasks that have finished.
        restarts: how often the run had to start over.
    """

    done: int
    failed: int
    dead: int
    results: int
    seconds: float
    partitions: tuple[Partition, ...] = ()
    restarts: int = 0


class Counts:
    """Adds up what tasks have done, over all rounds of a run."""

    def __init__(self) -> None:
        self._parts: dict[int, Partition] = {}

    def add(self, parts: Iterable[Partition]) -> None:
        """Add tasks that have finished."""
        for part in parts:
            old = self._parts.get(part.partition)
            if old is not None:
                part = Partition(
                    part.partition,
                    old.done + part.done,
                    old.failed + part.failed,
                    old.dead + part.dead,
                    old.results + part.results,
                    old.seconds + part.seconds,
                )
            self._parts[part.partition] = part

    def summary(self, seconds: float, restarts: int) -> Summary:
        """The summary of all tasks added."""
        parts = tuple(self._parts[number] for number in sorted(self._parts))
        return Summary(
            done=sum(part.done for part in parts),
            failed=sum(part.failed for part in parts),
            dead=sum(part.dead for part in parts),
            results=sum(part.results for part in parts),
            seconds=seconds,
            partitions=parts,
            restarts=restarts,
        )
