"""Adds jobs to topics: one ADDJOB for each queue that is bound.

Each of these is the command of a stand-in for the client, whose replies make the array that the
client gets, in the order of the queues: so each waits for its copies, and fails, as one sent alone.

They are run at once as far as a turn has room for them, and what is left in slices, between which
others are served. What the client sends behind it waits until all have been begun.
"""

from collections import deque
from typing import TYPE_CHECKING, Final

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.agenda import Agenda
from disque_trio.node.core.bindings import Bindings
from disque_trio.node.core.sharing import Commons, Sharing
from disque_trio.node.core.waits import REMOVED
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketWriter
from disque_trio.respserver.client import Client, Pending
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.machine import Machine

if TYPE_CHECKING:
    from mypy_extensions import i64

SLICE: Final = 50  # jobs; about a millisecond
SLICE_WORDS: Final = 2_000  # of their ADDJOBs
SLICE_BYTES: Final = 1 << 20  # of their bodies
MOST_LEFT: Final = 1 << 20  # jobs that are yet to be added


class Spread(Pending):
    """The pending reply of an ADDJOB for a topic.

    Attributes:
        part: on whose behalf the jobs are added, and who gets their replies.
        args: of the ADDJOB.
        queues: which get a job. begun: how many of them have been seen to.
        most: jobs in a slice.
    """

    __slots__ = ("args", "begun", "most", "part", "queues")

    def __init__(self, client: Client, args: list[bytes], queues: list[bytes], slice: int) -> None:
        super().__init__(client, None)
        part = self.part = Client(client.id)
        part.name = client.name
        part.label = client.label
        self.args = args
        self.queues = queues
        self.begun = 0
        size = len(args[2])
        self.most = max(1, min(slice, SLICE_WORDS // len(args), SLICE_BYTES // (size + 1)))

    @property
    def left(self) -> int:
        """The number of queues that have not been seen to."""
        return len(self.queues) - self.begun

    def replies(self) -> bytes:
        """The array of the replies of all parts; an error that all of them are stands alone."""
        out = self.part.out
        first = out[0]
        if first[:1] == b"-" and out.count(first) == len(out):
            return first
        return b"*%d\r\n" % len(out) + b"".join(out)


class Topics:
    """The topics of one node.

    Args:
        machine: runs the ADDJOBs.
        agenda: of the rare work.
        peers: the rest of the cluster.
        packets: makes this node's packets.
        commons: what all nodes know.

    Attributes:
        bindings: what is known of them. sharing: tells other nodes of that.
        slice: jobs that make one. most_left: jobs that may be yet to add; beyond that no ADDJOB
            for a topic is begun.
        waiting: the ADDJOBs that have not been answered, by their stand-ins.
    """

    def __init__(
        self,
        machine: Machine,
        agenda: Agenda,
        peers: Peers,
        packets: PacketWriter,
        commons: Commons,
    ) -> None:
        known = self.bindings = Bindings()
        self.sharing = Sharing("bindings", bus.BINDINGS, machine, known, peers, packets, commons)
        self.slice = SLICE
        self.most_left = MOST_LEFT
        self.waiting: dict[Client, Spread] = {}
        self._machine = machine
        self._agenda = agenda
        self._in_slices: deque[Spread] = deque()
        self._begun: list[Client] = []  # stand-ins of those that left it since the last ``settle``
        self._left = 0  # jobs that these are yet to add
        self._now: i64 = 0
        self._room = 0  # jobs that may be added at once at ``_now``

    def add(self, client: Client, args: list[bytes], queues: list[bytes]) -> None:
        """Add the job of the ADDJOB ``args`` to each of ``queues``.

        Raises:
            CommandError: too much is left to be done.
        """
        if not queues:
            client.out.append(b"*0\r\n")
            return
        if self._left + len(queues) > self.most_left:
            raise CommandError(
                f"ERR more than {self.most_left} jobs are being added to topics, try later"
            )
        if self._now != self._machine.now:
            self._now = self._machine.now
            self._room = self.slice
        spread = Spread(client, args, queues, self.slice)
        self._room -= self._go_on(spread, min(spread.most, self._room))
        part = spread.part
        if not spread.left and not part.in_flight:
            client.out.append(spread.replies())
            return
        client.line_up(spread)
        self.waiting[part] = spread
        if spread.left:
            self._in_slices.append(spread)
            self._left += spread.left
            client.in_slices += spread.left
            self._agenda.call(self._machine.now)

    def _go_on(self, spread: Spread, most: int) -> int:
        """Run up to ``most`` further ADDJOBs of ``spread``; returns how many."""
        machine = self._machine
        begun = spread.begun
        queues = spread.queues[begun : begun + most]
        rest = spread.args[2:]
        for queue in queues:
            machine.command(spread.part, [b"ADDJOB", queue, *rest], machine.now)
        spread.begun = begun + len(queues)
        return len(queues)

    def go_on(self, now: int) -> None:
        """Do a slice of the first one that is left."""
        if not self._in_slices:
            return
        spread = self._in_slices[0]
        done = self._go_on(spread, spread.most)
        self._left -= done
        spread.client.in_slices -= done
        if not spread.left:
            self._in_slices.popleft()
            self._begun.append(spread.part)
            self._machine.woken.append(spread.client)  # what it sent behind it may begin
        if self._in_slices:
            self._agenda.call(now)

    def settle(self) -> None:
        """Answer what has all of its replies, at the end of a turn; to be called while
        ``waiting``, when the stand-ins have theirs."""
        machine = self._machine
        begun, self._begun = self._begun, []
        for part in [*begun, *machine.woken]:
            spread = self.waiting.get(part)
            if spread is not None and not spread.left and not part.in_flight:
                del self.waiting[part]
                spread.reply = spread.replies()
                machine.answered.append(spread)

    def forget_client(self, client: Client) -> None:
        """``client`` has disconnected: what was not begun will not be, and nothing waits."""
        for spread in client.reply_queue:
            if isinstance(spread, Spread) and spread.reply is None:
                self._stop(spread)
                del self.waiting[spread.part]
                self._machine.forget_client(spread.part)

    def _stop(self, spread: Spread) -> None:
        """Begin nothing more of ``spread``."""
        left = spread.left
        if left:
            self._in_slices.remove(spread)
            self._left -= left
            spread.client.in_slices -= left
            spread.begun += left

    def flush(self) -> None:
        """All jobs are forgotten; those that are left are not added."""
        for spread in list(self._in_slices):
            for _ in range(spread.left):
                spread.part.line_up(Pending(spread.part, REMOVED))
            self._stop(spread)
            self._machine.answered.append(spread.part.reply_queue[-1])
