"""Decides which of the processes of a server serves a client best.

All processes accept clients at one port, and a client that knows nothing of that works with any of
them. But jobs that have to move to another process cost more than those that stay. So a client
whose commands are about queues of one other process is handed to that one, before more of its
commands are served here. Clients that mix queues of several all go to the first process, so that at
least the jobs that they pass to each other stay.

A client that asks about the node means the one that has this port for its own, which is the first;
if it asks about a job, the one where that was added knows most.
Nor is a client handed over that finds its way itself, for it believes to be where it connected to.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from disque_trio.node.core.queues.owners import owner
from disque_trio.respserver.access import ALL, GLOB, PATTERN
from disque_trio.respserver.machine import Machine

# Reads with commands about queues that tell where a client belongs; twice as many at the next look,
# since a client that mixes queues may seem not to.
ENOUGH: Final = 3
MOST_ENOUGH: Final = 24
MOST: Final = 16  # commands to look at in one read, and without a queue; then the client stays
REST: Final = 100  # commands until the next look; twice as many after each one
MOST_DOUBLINGS: Final = 7
FOREVER: Final = 1 << 62

NEUTRAL: Final = 0  # it tells nothing
QUEUES: Final = 1  # it is about some queues
ABOUT_NODE: Final = 2  # it is about the node, or about what this node alone has
ABOUT_JOB: Final = 3  # it is about what is known here of a job
KNOWS: Final = 4  # only clients that know the nodes, and what each has, send it

_KNOWS: Final = frozenset(("consume", "credit", "qowner"))
_SCANS: Final = frozenset(("jscan", "qscan"))
_ABOUT_CLIENTS: Final = frozenset((b"list", b"kill", b"pause", b"unpause", b"unblock"))
_ABOUT_NO_NODE: Final = frozenset(("command", "time"))


class Subject:
    """What a command is about.

    Attributes:
        kind: NEUTRAL, QUEUES, ABOUT_NODE, ABOUT_JOB or KNOWS.
        names: of the queues, or the id of the job.
    """

    def __init__(self, kind: int, names: Sequence[bytes] = ()) -> None:
        self.kind = kind
        self.names = names


def subject(machine: Machine, request: list[bytes]) -> Subject:
    """What ``request`` of a client of ``machine`` is about."""
    command = machine.find_command(request[0])
    if command is None or not command.min_args <= len(request) <= command.max_args:
        return Subject(NEUTRAL)
    name = command.alias_of or command.name
    if name in _KNOWS or (name == "hello" and len(request) == 1):
        return Subject(KNOWS)
    if name == "client":
        about_others = request[1].lower() in _ABOUT_CLIENTS
        return Subject(ABOUT_NODE if about_others else NEUTRAL)
    if name in _SCANS or (command.group in ("server", "cluster") and name not in _ABOUT_NO_NODE):
        return Subject(ABOUT_NODE)
    if name == "show":
        return Subject(ABOUT_JOB, request[1:2])
    for need in command.needs.values():
        if not isinstance(need, int) or need & (ALL | GLOB):
            return Subject(NEUTRAL)
    accesses, problem = command.accesses(machine, request)
    names: list[bytes] = []
    for queue, need in accesses:
        if need & PATTERN:
            return Subject(NEUTRAL)
        names.append(queue)
    return Subject(QUEUES, names) if names and not problem else Subject(NEUTRAL)


class ClientPlace:
    """What the commands of a client have told so far of where it belongs.

    Attributes:
        looks: how often that was decided.
        home: it was, or need not be, handed over because of what it asked about a node.
        to: the id of the node that it has to be handed to; empty: it stays.
        rest: commands that need not be looked at from now on; 0: the next ones tell more.
    """

    def __init__(self, looks: int = 0, home: bool = False) -> None:
        self.looks = looks
        self.home = home
        self.to = b""
        self.rest = 0
        self._looked_at = 0
        self._queues = 0  # reads with commands about queues among these
        self._best = b""

    def look(
        self, subjects: Iterable[Subject], own: bytes, first: bytes, nodes: Sequence[bytes]
    ) -> None:
        """Set ``to`` and ``rest``, now that the client has sent commands about these ``subjects``
        at once.

        Args:
            own: the id of this node.
            first: that of the first process; empty: it does not serve.
            nodes: ids of all processes that can have the client.
        """
        self.to = b""
        self.rest = 0
        named = False
        for one in islice(subjects, MOST):
            if one.kind == KNOWS:
                self._go_home(own, first)
                self.rest = FOREVER
                return
            if one.kind >= ABOUT_NODE and not (self.looks or self._queues):
                about = first if one.kind == ABOUT_NODE else _adder(one.names[0], nodes)
                self._go_home(own, about)
                if self.to:
                    return
            self._looked_at += 1
            if one.kind == QUEUES:
                named = True
                for queue in one.names:
                    best = owner(queue, nodes)
                    if self._best and best != self._best:
                        self._decide(first if first != own and first in nodes else b"")
                        return
                    self._best = best
        if named:
            self._queues += 1
        enough = ENOUGH << self._doublings()
        if self._queues >= (enough if enough < MOST_ENOUGH else MOST_ENOUGH):
            self._decide(self._best if self._best != own else b"")
        elif self._looked_at >= MOST * (1 + self._queues):
            self._decide(b"")

    def _doublings(self) -> int:
        return self.looks if self.looks < MOST_DOUBLINGS else MOST_DOUBLINGS

    def _go_home(self, own: bytes, about: bytes) -> None:
        """Hand the client to the node that it asks ``about``, if there is one, once."""
        if about and about != own and not self.home:
            self.to = about
        self.home = True

    def _decide(self, to: bytes) -> None:
        """Hand the client to ``to``, or keep it, for some time."""
        self.to = to
        self.rest = REST << self._doublings()
        self.looks += 1
        self._looked_at = 0
        self._queues = 0
        self._best = b""


def _adder(id: bytes, nodes: Sequence[bytes]) -> bytes:
    """The one of ``nodes`` where the job with this ``id`` was added; empty: none of them."""
    for node in nodes:
        if id[2:10] == node[:8]:
            return node
    return b""
