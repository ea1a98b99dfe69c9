"""What the others do with the jobs of a node whose process is gone.

What it had queued is soon queued by another holder, if that one was there when the job was made,
and nothing else goes wrong. What its clients had for some time is not delivered again before the
retry time is over.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from disque_trio.node.core.jobs.job import QUEUED, Job
from tests.simulator.events import MS, SECOND
from tests.simulator.timely_waits import runs

if TYPE_CHECKING:
    from tests.simulator.machine import Machine
    from tests.simulator.world import World

# A holder has to be refused for a second, tries to connect now and then, asks others for half a
# second, and waits half a second more for each of up to three holders that come first.
TAKEN_OVER = 2 * SECOND
EACH_BEFORE = SECOND // 2
KNOWN = 1_600  # ms after which a holder knows that the process is gone
TOLD = 250 * MS  # after which the others know that a client has a job


@dataclass(slots=True)
class Loss:
    """A process that is gone.

    Attributes:
        at: when it died, in µs. unlinked: since when no connection to it is left; 0: one is.
        well_since: since when all was well before.
        queued: ids of the jobs that another holder has to queue.
    """

    at: int
    well_since: int
    queued: list[bytes]
    unlinked: int = 0


class Losses:
    """The processes that are gone.

    Attributes:
        by_index: by the index of the machine, while it is the only thing that is wrong.
    """

    def __init__(self, world: "World") -> None:
        self.world = world
        self.by_index: dict[int, Loss] = {}
        self._down: set[int] = set()

    def look(self, well_since: int) -> list[tuple["Machine", bytes]]:
        """Look which processes are gone; until now, all has been well since ``well_since`` (µs).
        Returns the jobs that have to be queued elsewhere by now, and the machines that had them."""
        machines = self.world.machines
        down = {machine.index for machine in machines if not runs(machine)}
        new, self._down = down - self._down, down
        if len(down) != 1:
            self.by_index.clear()
            return []
        machine = machines[min(down)]
        if new and not machine.up and not machine.off:
            self.by_index = {machine.index: self._lost(machine, well_since)}
        loss = self.by_index.get(machine.index)
        if loss is None or machine.up:
            self.by_index.clear()
            return []
        others = [one for one in machines if one is not machine]
        for one in others:
            peers = one.node.peers
            if peers.linked(machine.id):
                return []
            if not all(peers.linked(other.id) for other in others if other is not one):
                self.by_index.clear()
                return []
        now = self.world.loop.now
        loss.unlinked = loss.unlinked or now
        if now - loss.unlinked < _taken_over(others):
            return []
        ids, loss.queued = loss.queued, []
        return [(machine, id) for id in ids]

    def _lost(self, machine: "Machine", well_since: int) -> Loss:
        others = [one for one in self.world.machines if one is not machine]
        queued = [
            job.id
            for job in machine.jobs.values()
            if job.state == QUEUED
            and job.retry
            and _when_made(machine, job) > well_since
            and any(one.holds(job.id) for one in others)
            and not self._may_pause(machine, job.id, others)
        ]
        return Loss(machine.died_at, well_since, queued)

    def _may_pause(self, machine: "Machine", id: bytes, others: "list[Machine]") -> bool:
        """Whether the retry time of the job ``id`` of ``machine``, which is gone, may be over for
        one of ``others`` before that one knows so; or before another one has queued the job, if it
        does not know where it was. Then it takes the job for delivered: it pauses, as the policy
        says, and so do all."""
        if not self.world.plan.backoff[1]:
            return False
        for one in others:
            job = one.jobs.get(id)
            if job is not None:
                knows = job.place is not None and job.place.node == machine.id
                if job.qtime < one.now() + (KNOWN if knows else _taken_over(others) // MS):
                    return True
        return False

    def was_told(self, index: int, taken: int) -> bool:
        """Whether the machine ``index`` is gone, and the others know that its client got a job at
        ``taken`` (µs)."""
        loss = self.by_index.get(index)
        return loss is not None and loss.well_since < taken < loss.at - TOLD


def _taken_over(others: "list[Machine]") -> int:
    """In what time one of ``others`` queues a job of a node that is gone, in µs."""
    return TAKEN_OVER + EACH_BEFORE * min(max(len(others) - 1, 0), 3)


def _when_made(machine: "Machine", job: Job) -> int:
    return machine.clock.when(job.ctime // 1_000_000)
