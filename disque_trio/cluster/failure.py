"""Failure detection: decides from own and reported observations whether a node is down.

A single node that gets no answer in time only suspects the other (PFAIL). If more than half of all
nodes do so at about the same time, it is considered down (FAIL), and all are told.
A cluster of two never gets that far. Nothing depends on the verdict being right: a failing node is
only avoided when copies are placed, and any PONG from it ends both states.
"""

from disque_trio.cluster.members import Member
from disque_trio.protocol.bus import NODE_FAIL, NODE_PFAIL

FAILING = NODE_PFAIL | NODE_FAIL
REPORTS_COUNT_FOR = 2  # node timeouts


def is_down(member: Member, size: int, time: int, node_timeout: int) -> bool:
    """Whether most of the ``size`` nodes, including this one, suspect ``member``. Drops reports
    that are too old to count."""
    if not member.flags & NODE_PFAIL or member.flags & NODE_FAIL:
        return False
    oldest = time - REPORTS_COUNT_FOR * node_timeout
    reports = {id: reported for id, reported in member.reports.items() if reported >= oldest}
    member.reports = reports
    return len(reports) + 1 >= size // 2 + 1


def mark_down(member: Member) -> None:
    """Mark ``member`` as down, suspected or not."""
    member.flags = member.flags & ~NODE_PFAIL | NODE_FAIL
