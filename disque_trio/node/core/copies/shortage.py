"""Says why a job cannot have as many copies as it should."""

from typing import Final

from disque_trio.cluster.peers import Obstacle, Peers
from disque_trio.cluster.troubles import TROUBLE_FILE, TROUBLE_MEMORY
from disque_trio.notation.addresses import format_address

_SHOWN: Final = 5  # nodes that are named


def too_few(peers: Peers, needed: int, external: bool, confirmed: int = 0) -> str:
    """The error for a job that ``needed`` other nodes have to hold, which they cannot.

    Args:
        external: this node is not going to hold it.
        confirmed: copies that there are already on nodes that can take no more.
    """
    obstacles = peers.obstacles()
    troubles = [obstacle.trouble for obstacle in obstacles]
    if obstacles and all(trouble & TROUBLE_FILE for trouble in troubles):
        return "NOREPL " + _named(obstacles)
    if obstacles and all(trouble & TROUBLE_MEMORY for trouble in troubles):
        short = [obstacle.address for obstacle in obstacles]
        if peers.trouble & TROUBLE_MEMORY:
            ip, port = peers.endpoint()
            short.insert(0, format_address(ip, port))
        return (
            f"NOREPL Memory is short on {len(short)} of {peers.size} nodes: {_limited(short)}. "
            "Acknowledge or delete jobs there, raise maxmemory, or add nodes"
        )
    have = peers.room(external) + confirmed
    besides = "" if external else " besides this one"
    why = _named(obstacles) or f"the cluster has {_size(peers)}"
    return f"NOREPL Not enough reachable nodes: {have} of the {needed} needed{besides}; {why}"


def not_confirmed(peers: Peers, silent: list[bytes]) -> str:
    """Which of the nodes ``silent`` have not confirmed a copy, as the end of an error."""
    addresses = [
        format_address(peer.ip, peer.port) + _why(peers, peer.id)
        for peer in peers.others()
        if peer.id in silent
    ]
    if not addresses:
        return ""
    verb = "has" if len(addresses) == 1 else "have"
    return f": {_limited(addresses)} {verb} not confirmed"


def _why(peers: Peers, id: bytes) -> str:
    """What is known of why the node ``id`` does not confirm, to follow its address."""
    if peers.has_slow_disk(id):
        return " (its disk is slow)"
    return " (it may still be loading)" if peers.linked(id) and not peers.answers(id) else ""


def _size(peers: Peers) -> str:
    """How many copies the cluster could hold if all nodes were well."""
    count = peers.places()
    return f"{count} {'host' if peers.by_host else 'node'}{'' if count == 1 else 's'}"


def _named(obstacles: list[Obstacle]) -> str:
    return _limited([f"{obstacle.address} {obstacle.why}" for obstacle in obstacles])


def _limited(texts: list[str]) -> str:
    """The first of ``texts``, and how many more there are."""
    more = len(texts) - _SHOWN
    return ", ".join(texts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
