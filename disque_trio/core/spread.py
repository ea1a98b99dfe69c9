"""Which nodes get the copies of a job where copies are to be on different hosts."""

from typing import TYPE_CHECKING

from disque_trio.core.job import Job
from disque_trio.core.peers import Peers

if TYPE_CHECKING:
    from random import Random


def choose_hosts(
    peers: Peers, rng: "Random", own: bytes, job: Job, count: int, external: bool
) -> list[bytes]:
    """Up to ``count`` reachable nodes that do not have ``job``, each on a host of its own: random
    ones of the hosts where nobody has it, then of those where nobody has confirmed it yet, and
    always those with a connection first.

    Args:
        own: this node's id.
        external: this node is not to hold the job, so another one of its host can.
    """
    here = peers.here()
    if not here:
        return []  # until that is known a node of this host may seem to be elsewhere
    holders = job.delivered or ()
    if not external and (not holders or (len(holders) == 1 and holders[0] == own)):
        partners = [id for id in peers.partners() if peers.linked(id)]
        if len(partners) >= count:
            return partners if len(partners) == count else rng.sample(partners, count)
    taken = {peers.place(id) for id in job.confirmed or ()}
    if not external:
        taken.add(here)
    asked = {peers.place(id) for id in holders if id != own}
    free: dict[str, list[bytes]] = {}
    for id in peers.reachable:
        place = peers.place(id)
        if id not in holders and place and place not in taken:
            free.setdefault(place, []).append(id)
    partners = peers.partners()
    chosen: list[bytes] = []
    for fresh in (True, False):
        places = [place for place in free if (place not in asked) == fresh]
        linked = [place for place in places if _linked(peers, free[place])]
        rest = [place for place in places if place not in linked]
        for group in (linked, rest):
            missing = count - len(chosen)
            some = group if len(group) <= missing else rng.sample(group, missing)
            for place in some:
                nodes = _linked(peers, free[place]) or free[place]
                wanted = [id for id in nodes if id in partners]
                chosen.append(wanted[0] if wanted else rng.choice(nodes))
    return chosen


def _linked(peers: Peers, nodes: list[bytes]) -> list[bytes]:
    """Those of ``nodes`` that hear at once."""
    return [id for id in nodes if peers.linked(id)]


def hosts_of(peers: Peers, confirmed: list[bytes], external: bool) -> int:
    """On how many hosts the nodes that ``confirmed`` a copy are; this node's own counts only if
    it holds no copy itself (``external``)."""
    places = {peers.place(id) for id in confirmed}
    if not external:
        places.discard(peers.here())
    places.discard("")  # forgotten meanwhile
    return len(places)
