"""What a turn has to tell another node about jobs that move between the two: which were
acknowledged, and which are wanted (SETTLED).

Of a job that only two nodes hold, the one whose client acknowledges it keeps no more than its id,
until the other has carried out the packet that names it. Packets are numbered, so that one number
confirms all jobs in them; it travels with whatever the other node has to say, or a moment later.
"""

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.rpc.timer import Timer
from disque_trio.protocol.bus import SETTLED, PacketWriter, QueueMessage
from disque_trio.protocol.settled import NONE, WANT_SIZE, Confirmation, Settled, pack_settled
from disque_trio.respserver.machine import Machine

if TYPE_CHECKING:
    from mypy_extensions import i64

MOST: Final = 10_000  # ids in one packet
MOST_NAMES: Final = 100_000  # bytes of the queues in one packet, unless the first is longer
CONFIRM_AFTER: Final = 100  # ms
PATIENCE: Final = 1_000  # ms until jobs that are not confirmed are told in another way


class Sent(NamedTuple):
    """A packet that is not confirmed: its number, when it was sent (ms), and the ids in it."""

    number: int
    time: int
    ids: list[bytes]


class Settlements:
    """What one node has to tell others at the end of the turn, and what they have not confirmed.

    Attributes:
        due: when to look at it, in ms since the epoch; 0: there is nothing to wait for.
        ends: ids of acknowledged jobs, by the node to tell.
        wants: the queues of which jobs are wanted, by the node to ask.
    """

    def __init__(self, machine: Machine, peers: Peers, packets: PacketWriter, timer: Timer) -> None:
        self.due: i64 = 0
        self._machine = machine
        self._peers = peers
        self._packets = packets
        self._timer = timer
        self.ends: dict[bytes, list[bytes]] = {}
        self.wants: dict[bytes, dict[bytes, QueueMessage]] = {}
        self._numbers: dict[bytes, int] = {}
        self._sent: dict[bytes, deque[Sent]] = {}
        self._heard: dict[bytes, Confirmation] = {}
        self._unconfirmed: dict[bytes, None] = {}  # nodes that wait to be told of ``_heard``
        self._confirm_at: i64 = 0
        # The last addition; the next is usually for the same node.
        self._node = b""
        self._ids: list[bytes] = []

    # ---- telling ----------------------------------------------------------------------------

    def acked(self, node: bytes, id: bytes) -> None:
        """Tell ``node`` that the job ``id`` was acknowledged."""
        if node != self._node or not self.ends:
            self._node = node
            self._ids = self.ends.setdefault(node, [])
        self._ids.append(id)

    def want(self, node: bytes, message: QueueMessage) -> None:
        """Ask ``node`` for jobs, as a NEEDJOBS with ``message`` does."""
        self.wants.setdefault(node, {})[message.queue] = message

    def send(self) -> None:
        """Send everything. Called at the end of the turn."""
        acked, self.ends = self.ends, {}
        wanted, self.wants = self.wants, {}
        for node, ids in acked.items():
            while len(ids) > MOST:
                self._send(node, ids[:MOST], [])
                ids = ids[MOST:]
            self._send_with_wants(node, ids, list(wanted.pop(node, {}).values()))
        for node, wants in wanted.items():
            self._send_with_wants(node, [], list(wants.values()))

    def _send_with_wants(self, node: bytes, ids: list[bytes], wants: list[QueueMessage]) -> None:
        """Send what fits into one packet, and the other ``wants`` in further ones."""
        at = 0
        size = 0
        for index, want in enumerate(wants):
            size += WANT_SIZE + len(want.queue)
            if size > MOST_NAMES and index > at:
                self._send(node, ids, wants[at:index])
                at = index
                ids = []
                size = 0
        self._send(node, ids, wants[at:])

    def _send(self, node: bytes, ids: list[bytes], wants: list[QueueMessage]) -> None:
        number = 0
        if ids:
            number = self._numbers.get(node, 0) + 1
            self._numbers[node] = number
            now = self._machine.now
            sent = self._sent.get(node)
            if sent is None:
                sent = self._sent[node] = deque()
            sent.append(Sent(number, now, ids))
            self._wake(now + PATIENCE)
        message = Settled(number, self.confirmation(node), ids, wants)
        self._peers.send(node, self._packets.packet(SETTLED, pack_settled(message)))

    def _wake(self, due: int) -> None:
        if not self.due or due < self.due:
            self.due = due
            self._timer.wake_by(due)

    def drop(self) -> dict[bytes, list[bytes]]:
        """Send nothing, and confirm nothing: the records of the turn could not be written. Returns
        the jobs of which others have to be told in another way."""
        self.wants = {}
        self._heard = {}
        self._unconfirmed = {}
        ends, self.ends = self.ends, {}
        return ends

    # ---- confirming -------------------------------------------------------------------------

    def heard(self, sender: bytes, number: int) -> None:
        """Note that the packet ``number`` of ``sender`` was carried out."""
        row = self._heard.get(sender, NONE)
        if number == row.last + 1 and row.last:
            self._heard[sender] = Confirmation(row.first, number)
        elif not row.first <= number <= row.last:
            self._heard[sender] = Confirmation(number, number)
        if not self._unconfirmed:
            self._confirm_at = self._machine.now + CONFIRM_AFTER
            self._wake(self._confirm_at)
        self._unconfirmed[sender] = None

    def confirmation(self, node: bytes) -> Confirmation:
        """What a packet to ``node`` has to confirm, which has not to be told again then."""
        self._unconfirmed.pop(node, None)
        return self._heard.get(node, NONE)

    def confirmed(self, node: bytes, row: Confirmation) -> None:
        """Note that ``node`` has carried out the packets of ``row``."""
        sent = self._sent.get(node)
        if not sent or sent[0].number > row.last:
            return
        earlier: list[Sent] = []
        while sent and sent[0].number <= row.last:
            one = sent.popleft()
            if one.number < row.first:
                earlier.append(one)
        earlier.reverse()
        sent.extendleft(earlier)

    def overdue(self, now: int) -> dict[bytes, list[bytes]]:
        """Confirm at ``now`` what has to be confirmed, and return what others have not confirmed
        in time, by node: that is forgotten here."""
        if self._unconfirmed and self._confirm_at <= now:
            for node in list(self._unconfirmed):
                self._send(node, [], [])
        late: dict[bytes, list[bytes]] = {}
        self.due = self._confirm_at if self._unconfirmed else 0
        for node, sent in list(self._sent.items()):
            while sent and sent[0].time <= now - PATIENCE:
                late.setdefault(node, []).extend(sent.popleft().ids)
            if sent:
                self._wake(sent[0].time + PATIENCE)
            else:
                del self._sent[node]
        return late

    def untold(self, node: bytes) -> list[bytes]:
        """The jobs of which ``node`` has confirmed nothing: there is a new connection to it. They
        are forgotten here."""
        return [id for sent in self._sent.pop(node, ()) for id in sent.ids]

    def flush(self) -> None:
        """Start over: all jobs have been forgotten."""
        self.ends.clear()
        self._sent.clear()
