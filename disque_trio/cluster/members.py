"""The table of the other nodes.

``known`` are the members of the cluster. ``handshakes`` are addresses that somebody named and whose
node has not answered yet: they have made-up ids and take no part in anything. The lists for the
jobs (``everyone``, ``reachable``) are computed when the table changes, not when they are needed.
"""

from collections.abc import Callable

from disque_trio.cluster.links import Link
from disque_trio.cluster.troubles import TAKES_NONE
from disque_trio.protocol.bus import (
    NODE_FAIL,
    NODE_HANDSHAKE,
    NODE_LEAVING,
    NODE_NOADDR,
    NODE_PFAIL,
)
from disque_trio.protocol.serialjob import NODE_ID_LENGTH

NEVER = 1 << 62  # ms
_HEX = b"0123456789abcdef"
_NOT_REACHABLE = NODE_PFAIL | NODE_FAIL | NODE_LEAVING | NODE_NOADDR


def is_node_id(id: bytes) -> bool:
    """Whether ``id`` is 40 lower-case hex characters."""
    return len(id) == NODE_ID_LENGTH and not id.strip(_HEX)


class Member:
    """Another node as this one sees it. Times are ms on the membership's own clock.

    Attributes:
        id: 40 bytes; made up while it is a handshake.
        ip, port: for clients; empty and 0 while it has NODE_NOADDR.
        flags: NODE_* bits; NODE_MEET: the first packet to it is a MEET.
        hearsay: a handshake that began because another node mentioned it.
        meeting: CLUSTER MEET named it, and it has not pinged this node yet: perhaps it does not
            know this node. MEET is repeated.
        answers: it has answered over this link; a node that still loads its jobs does not.
        pinged: it has pinged this node, and so knows it.
        since: when it came into the table; 0: not set yet.
        link: the outgoing one, even before it is up. pings_over: the one that it opened itself.
        link_since: when that was begun, then when it came up.
        retry_at: no new link before that time.
        attempts: failed links since the last PONG.
        ping_sent: when the first PING without a PONG was sent (or a link for it begun); 0: no PONG
            is awaited.
        pong_received: 0: never.
        owes_since: since when it owes an answer to more than a PING, and has sent nothing; 0: it
            owes none.
        due: when the heartbeat looks at it again; NEVER: not before something happens.
        extensions: what it announces beyond C Disque; 0: nothing, or not heard yet.
        trouble: what keeps it from taking copies, as it announces.
        tls_port: for clients with TLS; 0: none, or not heard yet.
        process: which one of its server it is; empty: the only one, or not heard yet.
        key: that it has to show, according to CLUSTER MEET; empty: none was named.
        reports: ids of the members that say that it is failing, and when they last said so.
    """

    def __init__(self, id: bytes, ip: str, port: int, flags: int, since: int) -> None:
        self.id = id
        self.ip = ip
        self.port = port
        self.flags = flags
        self.since = since
        self.hearsay = False
        self.meeting = False
        self.answers = False
        self.pinged = False
        self.link: Link | None = None
        self.pings_over: Link | None = None
        self.link_since = 0
        self.retry_at = 0
        self.attempts = 0
        self.ping_sent = 0
        self.pong_received = 0
        self.owes_since = 0
        self.due = NEVER
        self.extensions = 0
        self.trouble = 0
        self.tls_port = 0
        self.process = b""
        self.key = b""
        self.reports: dict[bytes, int] = {}

    def connected(self) -> bool:
        """Whether packets can be sent to it."""
        return self.link is not None and self.link.up

    def answered(self) -> bool:
        """Whether packets can be sent to it, and it has answered over this connection."""
        return self.link is not None and self.link.up and self.link.answered


class Members:
    """The table of the other nodes.

    Attributes:
        known, handshakes: by id.
        everyone: ids of all in ``known``, sorted, so that a simulation can be repeated.
        reachable: those that are neither failing nor leaving, sorted.
        takers: those of them that can take copies of jobs, sorted.
        suspects: those that only this node considers failing, sorted.

    Args:
        changed: called after the lists have changed, with whether that is worth a write to disk.
    """

    def __init__(self, changed: Callable[[bool], None] = lambda matters: None) -> None:
        self.known: dict[bytes, Member] = {}
        self.handshakes: dict[bytes, Member] = {}
        self.everyone: list[bytes] = []
        self.reachable: list[bytes] = []
        self.takers: list[bytes] = []
        self.suspects: list[bytes] = []
        self._changed = changed

    def __len__(self) -> int:
        return len(self.known) + len(self.handshakes)

    def all(self) -> list[Member]:
        """The members by id, then the handshakes."""
        return [*(self.known[id] for id in self.everyone), *self.handshakes.values()]

    def update(self, matters: bool = True) -> None:
        """Compute the lists. Call it when ``known`` or a flag in it has changed. ``matters``:
        whether that is worth a write to disk.

        Makes new lists, so that code that iterates over an old one is not disturbed.
        """
        self.everyone = sorted(self.known)
        self.reachable = [i for i in self.everyone if not self.known[i].flags & _NOT_REACHABLE]
        self.takers = [id for id in self.reachable if not self.known[id].trouble & TAKES_NONE]
        self.suspects = [i for i in self.everyone if self.known[i].flags & NODE_PFAIL]
        self._changed(matters)

    def owner(self, link: Link) -> Member | None:
        """The member whose outgoing link it is; None if it is incoming or was given up."""
        if link.node_id is None:
            return None
        member = self.known.get(link.node_id) or self.handshakes.get(link.node_id)
        return member if member is not None and member.link is link else None

    def under_way(self, ip: str, port: int) -> Member | None:
        """The handshake with that address; None: there is none."""
        for member in self.handshakes.values():
            if member.ip == ip and member.port == port:
                return member
        return None

    def remove(self, member: Member) -> None:
        """Close the member's link, and forget the member and its reports."""
        if member.link is not None:
            member.link.close()
            member.link = None
        if member.flags & NODE_HANDSHAKE:
            del self.handshakes[member.id]
            return
        del self.known[member.id]
        for other in self.known.values():
            other.reports.pop(member.id, None)
        self.update()

    def admit(self, member: Member, id: bytes) -> None:
        """Make the handshake ``member``, which answered with this ``id``, a member."""
        del self.handshakes[member.id]
        member.id = id
        member.flags &= ~NODE_HANDSHAKE
        if member.link is not None:
            member.link.node_id = id
        self.known[id] = member
        self.update()
