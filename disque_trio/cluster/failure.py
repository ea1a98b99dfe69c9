"""Failure detection: decides from own and reported observations whether a node is down.

A single node that gets no answer in time only suspects the other (PFAIL). If more than half of all
nodes do so at about the same time, it is considered down (FAIL), and all are told.
A cluster of two never gets that far. Nothing depends on the verdict being right: a failing node is
only avoided when copies are placed, and any PONG from it ends both states.

A node whose machine refuses connections is dead, though: silence may be a partition, but a refusal
means that the machine can be reached, and that no process listens there.
"""

from disque_trio.cluster.members import Member
from disque_trio.protocol.bus import NODE_FAIL, NODE_PFAIL

FAILING = NODE_PFAIL | NODE_FAIL
REPORTS_COUNT_FOR = 2  # node timeouts
REFUSED_FOR = 1_000  # ms; a process that starts again at once finds its jobs where they were


class Refusals:
    """The nodes whose machines refuse connections."""

    def __init__(self) -> None:
        self._since: dict[bytes, int] = {}  # by node, in ms; -1: that it is dead was said

    def refused(self, node: bytes, time: int) -> bool:
        """Note that the machine of ``node`` refused a connection at ``time`` (ms); return whether
        it has done so for long enough that the node is dead. That is so once."""
        since = self._since.setdefault(node, time)
        if since < 0 or time - since < REFUSED_FOR:
            return False
        self._since[node] = -1
        return True

    def answered(self, node: bytes) -> None:
        """Note that ``node`` is not known to be dead: it was heard of, or nothing is refused."""
        self._since.pop(node, None)


def is_down(member: Member, size: int, time: int, node_timeout: int) -> bool:
    """Whether most of the ``size`` nodes, including this one, suspect ``member``. May drop
    reports that are too old to count."""
    if not member.flags & NODE_PFAIL or member.flags & NODE_FAIL:
        return False
    if len(member.reports) < size // 2:
        return False  # whatever their age; most of the time
    oldest = time - REPORTS_COUNT_FOR * node_timeout
    reports = {id: reported for id, reported in member.reports.items() if reported >= oldest}
    member.reports = reports
    return len(reports) + 1 >= size // 2 + 1


def mark_down(member: Member) -> None:
    """Mark ``member`` as down, suspected or not."""
    member.flags = member.flags & ~NODE_PFAIL | NODE_FAIL
