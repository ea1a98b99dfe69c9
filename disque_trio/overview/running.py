"""The jobs in hand whose tasks say how far they are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from disque_trio.client.shown import ShownJob
from disque_trio.overview.names import matching


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job in hand.

    Attributes:
        fraction: how much of it is done, from 0 to 1. text: what its task says about that.
    """

    id: str
    queue: str
    fraction: float
    text: str

    @classmethod
    def of(cls, job: ShownJob) -> Self | None:
        """The job that SHOW describes; None: its task says nothing."""
        try:
            fraction = float(job.progress)
        except ValueError:
            return None
        return cls(job.id, job.queue, min(1.0, max(0.0, fraction)), job.progress_text)


class RunningJobs:
    """Those of all nodes."""

    def __init__(self) -> None:
        self._by_node: dict[str, Sequence[RunningJob]] = {}

    def took(self, address: str, jobs: Sequence[RunningJob]) -> None:
        """Take those of a node."""
        self._by_node[address] = jobs

    def node_lost(self, address: str) -> None:
        """Forget those of a node that is unreachable or gone."""
        self._by_node.pop(address, None)

    def find(self, search: str) -> list[RunningJob]:
        """Those in queues whose names contain ``search``, or match it if it is a pattern, by queue
        and id."""
        jobs: Iterable[RunningJob] = (job for some in self._by_node.values() for job in some)
        if search:
            matches = matching(search)
            jobs = (job for job in jobs if matches(job.queue))
        return sorted(jobs, key=lambda job: (job.queue, job.id))
