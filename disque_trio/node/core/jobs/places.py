"""Where jobs are as far as a node knows that holds copies of them: in which node's queue, or in the
hands of which node's clients.

A copy comes from the node that queues the job. That node tells the other holders when it queues the
job again, and some time after it has delivered it or given it away: not of jobs that end sooner, as
most do. So if it dies, the others know what it had in its queues (see ``dead_nodes``).
"""

from typing import TYPE_CHECKING, Final

from disque_trio.native import mypyc_attr

if TYPE_CHECKING:
    from mypy_extensions import i64

# ms; a holder is told of a delivery after one to two such times.
TELL_AFTER: Final = 100


@mypyc_attr(acyclic=True)
class Place:
    """Where jobs are; never changed, as jobs share it.

    Attributes:
        node: id of a node.
        in_hand: a client of that node has them; otherwise they are in its queues.
    """

    __slots__ = ("in_hand", "node")

    def __init__(self, node: bytes, in_hand: bool) -> None:
        self.node = node
        self.in_hand = in_hand


class Places:
    """The places that the jobs of one node share, and what has left its queues lately.

    Attributes:
        due: when to look at ``left``, in ms since the epoch; 0: there is nothing.
    """

    def __init__(self) -> None:
        self.due: i64 = 0
        self._tell_after: i64 = TELL_AFTER
        self._queued: dict[bytes, Place] = {}
        self._in_hand: dict[bytes, Place] = {}
        self._left: list[bytes] = []
        self._left_before: list[bytes] = []

    def queued(self, node: bytes) -> Place:
        """In a queue of ``node``."""
        place = self._queued.get(node)
        if place is None:
            place = self._queued[node] = Place(node, False)
        return place

    def in_hand(self, node: bytes) -> Place:
        """In the hands of a client of ``node``."""
        place = self._in_hand.get(node)
        if place is None:
            place = self._in_hand[node] = Place(node, True)
        return place

    def leaves(self, id: bytes, now: int) -> None:
        """Note that the job ``id``, which other nodes hold too, leaves the queue here at ``now``
        (ms)."""
        self._left.append(id)
        if not self.due:
            self.due = now + self._tell_after

    def hurry(self, now: int) -> None:
        """Keep nothing back from ``now`` (ms) on: this node is about to stop."""
        self._tell_after = 0
        if self.due:
            self.due = now

    def take(self, now: int) -> list[bytes]:
        """The ids of the jobs that have left long enough ago, at ``now``; they are forgotten."""
        found = self._left_before
        self._left_before = self._left
        self._left = []
        if not self._tell_after:
            found += self._left_before
            self._left_before = []
        self.due = now + TELL_AFTER if self._left_before else 0
        return found

    def flush(self) -> None:
        """Forget what has left: all jobs have been forgotten."""
        self._left = []
        self._left_before = []
        self.due = 0
