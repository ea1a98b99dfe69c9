"""What a run has done."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Partition:
    """What a task has done, or those of several rounds with the same number.

    Attributes:
        partition: its number.
        done: jobs that were acknowledged. failed: that were handed back; ``dead`` of these are
            dead letters now. results: that were sent.
        seconds: that it took.
    """

    partition: int
    done: int
    failed: int
    dead: int
    results: int
    seconds: float


@dataclass(frozen=True)
class Summary:
    """What a run has done; what was done by tasks that died is not counted.

    Attributes:
        done, failed, dead, results: as in ``Partition``, of all of them.
        seconds: that the run took, with its start and its restarts.
        partitions: one for each number of tasks that came to their end.
        restarts: how often Spark had to be asked again.
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
        """These tasks have ended."""
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
        """All of it."""
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
