"""Chooses which third nodes a PING or PONG mentions.

A few at random, so that after some rounds everyone has heard of everyone, and all that this node
suspects, so that a verdict does not have to wait for chance.
"""

from disque_trio.cluster.failure import FAILING
from disque_trio.cluster.members import Member, Members
from disque_trio.protocol.bus import NODE_NOADDR, Gossip
from disque_trio.rng import Rng

MIN_ENTRIES = 3
SHARE = 10  # of so many nodes, one is told of
MAX_SUSPECTS = 100


def choose_entries(members: Members, rng: Rng, recipient: bytes, wall_offset: int) -> list[Gossip]:
    """Entries for a packet to the node ``recipient``.

    ``wall_offset`` is what to add to the membership's time for the time of day, in ms.
    """
    wanted = max(MIN_ENTRIES, (len(members) + 1) // SHARE)
    chosen = _sample(members.everyone, rng, wanted + 1)
    entries = _entries(members, chosen, recipient, wall_offset)[:wanted]
    if members.suspects:
        told = {entry.id for entry in entries}
        suspects = [id for id in members.suspects if id not in told]
        chosen = _sample(suspects, rng, MAX_SUSPECTS)
        entries += _entries(members, chosen, recipient, wall_offset)
    return entries


def _sample(ids: list[bytes], rng: Rng, count: int) -> list[bytes]:
    return ids if len(ids) <= count else rng.sample(ids, count)


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
            max(member.extensions, 0),
        )
        for id in ids
        if id != recipient and _worth_telling(member := members.known[id])
    ]


def _worth_telling(member: Member) -> bool:
    """An address without a connection may be a wrong one; but that a node fails has to be told."""
    if member.flags & NODE_NOADDR:
        return False
    return member.connected() or member.flags & FAILING != 0
