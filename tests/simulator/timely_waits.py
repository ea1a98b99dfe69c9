"""Whether clients that wait get jobs in time, in a healthy cluster.

A client that waits for jobs of a queue gets one within ``AT_ONCE``, wherever it is queued, if their
nodes reach each other. If the queue has a limit of jobs in hand, this is so while clients of all
nodes together have fewer, those of its own node have fewer than an equal share, and all nodes have
known of each other for ``KNOWN``.
"""

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from disque_trio.node.core.delivery.patterns import STANDS_IN
from disque_trio.node.core.queues.queue import PAUSED_OUT, Queue
from disque_trio.node.core.queues.shares import VALID
from disque_trio.respserver.client import Client
from tests.simulator.events import MS
from tests.simulator.patterns import matches
from tests.simulator.records import Complain

if TYPE_CHECKING:
    from tests.simulator.machine import Machine
    from tests.simulator.world import World

LOOKED_AT = 5  # jobs at the head of each queue
# How long a client may wait for a job that is elsewhere: a node that asked all others for an
# earlier client asks them again after 100 ms.
AT_ONCE = 100 * MS
# A node that is away counts with what its clients had for this long.
KNOWN = VALID * MS


class Waits:
    """The clients that wait, and the jobs that they wait for.

    Args:
        complain: notes a broken promise: a text, and the ids that it is about.
    """

    def __init__(self, world: "World", complain: Complain) -> None:
        self.world = world
        self._complain = complain
        # Since when a client waits for a queue, or a job is in one, in µs, while both is so.
        self._since: dict[tuple[bytes, bytes | Client], int] = {}
        self._apart: dict[tuple[int, int], int] = {}  # when two machines were last not linked
        self._started = 0
        self._full: dict[bytes, int] = {}  # when the limit of a queue was last used up
        # When the clients of a machine last had a share of it. The others come first.
        self._shared: dict[tuple[bytes, int], int] = {}
        # When a client last got something, in µs, by its machine and id: of a client that consumes,
        # another object waits.
        self._answered: dict[tuple[int, int], int] = {}
        self._told: set[bytes] = set()

    def start(self) -> None:
        """Begin to look."""
        self._started = self.world.loop.now

    def answered(self, machine: "Machine", client: Client) -> None:
        """``machine`` sends something to ``client``."""
        self._answered[machine.index, client.id] = self.world.loop.now

    def is_well(self) -> bool:
        """Whether all nodes are up and reach each other. Notes which of them do."""
        now = self.world.loop.now
        serving = [machine for machine in self.world.machines if runs(machine)]
        for one in self.world.machines:
            for other in self.world.machines:
                if not (one in serving and other in serving and _are_linked(one, other)):
                    self._apart[one.index, other.index] = now
        return now not in self._apart.values()

    def check(self) -> None:
        """Check that no client waits for long for a queue that has jobs on its node or on one which
        that can reach."""
        now = self.world.loop.now
        stocked: dict[bytes, list[tuple[bytes, int]]] = {}
        for machine in self.world.machines:
            if machine.up:
                for name, queue in machine.node.queues.by_name.items():
                    if queue.length and _gives(queue):
                        for job in islice(queue.first_to_last(), LOOKED_AT):
                            stocked.setdefault(name, []).append((job.id, machine.index))
        if self.world.plan.active:
            self._note_full(stocked)
        before, self._since = self._since, {}
        for name, jobs in stocked.items():
            clients = self._waiting(name)
            if not clients:
                continue
            for id, _ in jobs:
                self._since[name, id] = before.get((name, id), now)
            for client, index in clients:
                answered = self._answered.get((index, client.id), 0)
                self._since[name, client] = max(before.get((name, client), now), answered)
            for id, source in jobs:
                for client, index in clients:
                    self._check_wait(name, (id, source), (client, index))

    def delivered(self, name: bytes) -> None:
        """A client gets a job of the queue ``name``. It may be done with it, and get the next one,
        between two checks."""
        if self.world.plan.active:
            self._note_full([name])

    def _note_full(self, names: Iterable[bytes]) -> None:
        """Note of which of the queues ``names`` clients have as many jobs in hand as they may, or
        those of a machine its share."""
        active, now = self.world.plan.active, self.world.loop.now
        share = max(active // len(self.world.machines), 1)
        for name in names:
            in_hand = 0
            for machine in self.world.machines:
                limit = machine.node.limits.by_name.get(name)
                here = 0 if limit is None else len(limit.in_hand)
                in_hand += here
                if here >= share:
                    self._shared[name, machine.index] = now
            if in_hand >= active:
                self._full[name] = now

    def _check_wait(self, name: bytes, job: tuple[bytes, int], client: tuple[Client, int]) -> None:
        """Check that ``client`` does not wait for long for ``job`` of the queue ``name``, each with
        the index of its node."""
        together = self._apart.get((job[1], client[1]), self._started)
        since = max(self._since[name, job[0]], self._since[name, client[0]], together)
        if self.world.plan.active:
            known = max(self._apart.values(), default=self._started) + KNOWN
            since = max(since, self._full.get(name, 0), known)
            since = max(since, self._shared.get((name, client[1]), 0))
        late = self.world.loop.now - since
        if late > AT_ONCE and name not in self._told:
            self._told.add(name)
            self._complain(
                f"a client of node {client[1]} waits for {name.decode()!r} since {late // MS} ms, "
                f"and node {job[1]} has this job",
                job[0],
            )

    def _waiting(self, name: bytes) -> list[tuple[Client, int]]:
        """The clients that wait for jobs of the queue ``name``, with the indexes of their nodes."""
        found: list[tuple[Client, int]] = []
        for machine in self.world.machines:
            if not machine.up:
                continue
            queue = machine.node.queues.by_name.get(name)
            if queue is not None and queue.paused & PAUSED_OUT:
                continue
            waiters = [] if queue is None else [one for one in queue.waiters if not _stands_in(one)]
            by_pattern = machine.node.deliveries.interests.by_client.items()
            waiters += [
                client
                for client, interests in by_pattern
                if any(matches(interest.pattern, name) for interest in interests)
            ]
            found += [(client, machine.index) for client in waiters]
        return found


def runs(machine: "Machine") -> bool:
    """Whether ``machine`` is up and serves clients and other nodes."""
    now = machine.world.loop.now
    return machine.up and not machine.stopping and machine.paused_until <= now


def _are_linked(one: "Machine", other: "Machine") -> bool:
    """Whether two machines reach each other, or are the same."""
    if one is other:
        return True
    return one.node.peers.linked(other.id) and other.node.peers.linked(one.id)


def _stands_in(client: Client) -> bool:
    """Whether ``client`` only stands for those that wait by pattern."""
    return client.details & STANDS_IN != 0


def _gives(queue: Queue) -> bool:
    """Whether a client may take a job from ``queue``, which has some."""
    if queue.paused & PAUSED_OUT:
        return False
    if queue.groups is None:
        return True
    groups = getattr(queue.groups, "by_name")  # noqa: B009 - of JobGroups
    return any(group.is_ready() for group in groups.values())
