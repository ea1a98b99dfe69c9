"""Which of several nodes is the best for a queue: there its producers and consumers meet."""

import hashlib
from collections.abc import Iterable

from disque_trio.cluster.peers import Peers


def owner(queue: bytes, nodes: Iterable[bytes]) -> bytes:
    """The one of ``nodes``, ids of 40 bytes, that is best for ``queue``: whoever sees the same
    nodes finds the same one. A node that comes or goes takes or leaves only its own queues
    (rendezvous hashing).

    Raises:
        ValueError: there are no nodes.
    """
    return max(nodes, key=lambda id: (hashlib.blake2b(queue, digest_size=8, key=id).digest(), id))


def able(peers: Peers, own: bytes) -> list[bytes]:
    """The nodes that may own queues, as the node ``own`` sees it: those that can be reached, know
    more than C nodes and are not short of memory or disk; if all are short, all of them."""
    others = [id for id in peers.reachable if peers.understands(id)]
    takers = set(peers.takers())
    well = [id for id in others if id in takers]
    if not (peers.leaving or peers.trouble):
        well.append(own)
    return well or (others if peers.leaving and others else [*others, own])
