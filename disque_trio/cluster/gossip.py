"""Chooses which third nodes a PING or PONG mentions.

A few random ones, so that after some rounds everyone has heard of everyone; and all that this node
suspects, so that a verdict does not depend on chance. The number of a node's packets grows with the
cluster, so a few in each are enough: a cluster of any size has heard of a node in seconds. A node
whose connection is new hears of more, since it may know nobody yet; and so does a C node, which
tells others in the same way.
"""

from disque_trio.cluster.failure import FAILING
from disque_trio.cluster.members import Member, Members
from disque_trio.protocol.bus import NODE_NOADDR, Gossip
from disque_trio.rng import Rng

MIN_ENTRIES = 3
SHARE = 10  # one out of this many nodes is mentioned to C nodes and new ones
MAX_SUSPECTS = 100


def choose_entries(members: Members, rng: Rng, recipient: bytes, wall_offset: int) -> list[Gossip]:
    """Choose the entries for a packet to the node ``recipient``.

    ``wall_offset``: ms to add to the membership's time to get the time of day.
    """
    wanted = MIN_ENTRIES
    known = members.known.get(recipient)
    if known is None or not (known.extensions and known.pinged and known.answers):
        wanted = max(wanted, (len(members) + 1) // SHARE)
    chosen = _sample(members.everyone, rng, wanted + 1)
    entries = _entries(members, chosen, recipient, wall_offset)[:wanted]
    if members.suspects:
        told = {entry.id for entry in entries}
        suspects = [id for id in members.suspects if id not in told]
        chosen = _sample(suspects, rng, MAX_SUSPECTS)
        entries += _entries(members, chosen, recipient, wall_offset)
    return entries


def _sample(ids: list[bytes], rng: Rng, count: int) -> list[bytes]:
    """Return all of ``ids``, or ``count`` that follow each other, beginning anywhere: that is ten
    times faster than to draw each one, and every node is mentioned as often."""
    size = len(ids)
    if size <= count:
        return ids
    start = int(rng.random() * size)
    return ids[start : start + count] + ids[: max(start + count - size, 0)]


def _entries(
    members: Members, ids: list[bytes], recipient: bytes, wall_offset: int
) -> list[Gossip]:
    return [
        Gossip(
            id,
            member.ping_sent and member.ping_sent + wall_offset,
            member.pong_received and member.pong_received + wall_offset,
            member.ip,
            member.port,
            member.flags,
        )
        for id in ids
        if id != recipient and _worth_telling(member := members.known[id])
    ]


def _worth_telling(member: Member) -> bool:
    """Whether to mention ``member``. An address without a connection may be wrong; but a failing
    node has to be mentioned."""
    if member.flags & NODE_NOADDR:
        return False
    return member.connected() or member.flags & FAILING != 0
