"""Which of several nodes is the best for a queue, so that its producers and consumers meet there."""

from collections.abc import Iterable
from hashlib import blake2b


def owner(queue: bytes, nodes: Iterable[bytes]) -> bytes:
    """The one of ``nodes``, ids of 40 bytes, that is best for ``queue``: whoever sees the same
    nodes finds the same one. A node that comes or goes takes or leaves only its own queues
    (rendezvous hashing).

    Raises:
        ValueError: there are no nodes.
    """
    return max(nodes, key=lambda id: (blake2b(queue, digest_size=8, key=id).digest(), id))
