"""Chooses the nodes that get the copies of a job."""

from disque_trio.node.core.jobs.job import FLAG_TRAILER, Job
from disque_trio.node.core.queues.core import Core


class Placement:
    """Chooses nodes for the copies of a job, on different hosts where possible."""

    def __init__(self, core: Core) -> None:
        self._trailers = core.store.trailers
        self._peers = core.peers
        self._replicas = core.store.replicas
        self._rng = core.rng

    def choose(self, job: Job, count: int, external: bool) -> list[bytes]:
        """Up to ``count`` random reachable nodes that do not have ``job``, connected ones first.
        ``external``: this node is not going to hold the job."""
        peers = self._peers
        if peers.by_host:
            return self._choose_hosts(job, count, external)
        reachable = self._takers(job)
        holders = job.delivered
        if holders is not None and holders != self._replicas.alone:
            reachable = [id for id in reachable if id not in holders]
        if len(reachable) <= count:
            return reachable
        linked = self._linked(reachable)
        if len(linked) >= count:
            return self._rng.sample(linked, count)
        rest = [id for id in reachable if id not in linked]
        return linked + self._rng.sample(rest, count - len(linked))

    def _choose_hosts(self, job: Job, count: int, external: bool) -> list[bytes]:
        """Up to ``count`` reachable nodes that do not have ``job``, each on a host of its own:
        random ones on hosts where no node has it, then on hosts where none has confirmed it yet;
        connected ones first. ``external``: this node is not going to hold the job, so another on
        its host can."""
        peers = self._peers
        rng = self._rng
        own = self._replicas.own
        here = peers.here()
        if not here:
            return []  # until that is known, a node on this host may seem to be elsewhere
        holders = job.delivered or ()
        takers = self._takers(job)
        if not external and (not holders or (len(holders) == 1 and holders[0] == own)):
            partners = self._linked(peers.partners())
            if takers is not peers.takers():
                partners = [id for id in partners if id in takers]
            if len(partners) >= count:
                return partners if len(partners) == count else rng.sample(partners, count)
        taken = {peers.place(id) for id in job.confirmed or ()}
        if not external:
            taken.add(here)
        asked = {peers.place(id) for id in holders if id != own}
        free: dict[str, list[bytes]] = {}
        for id in takers:
            place = peers.place(id)
            if id not in holders and place and place not in taken:
                free.setdefault(place, []).append(id)
        partners = peers.partners()
        chosen: list[bytes] = []
        for fresh in (True, False):
            places = [place for place in free if (place not in asked) == fresh]
            linked = [place for place in places if self._linked(free[place])]
            rest = [place for place in places if place not in linked]
            for group in (linked, rest):
                missing = count - len(chosen)
                some = group if len(group) <= missing else rng.sample(group, missing)
                for place in some:
                    nodes = self._linked(free[place]) or free[place]
                    wanted = [id for id in nodes if id in partners]
                    chosen.append(wanted[0] if wanted else rng.choice(nodes))
        return chosen

    def _takers(self, job: Job) -> list[bytes]:
        """The nodes that can take a copy of ``job``."""
        takers = self._peers.takers()
        if job.flags & FLAG_TRAILER and not self._trailers.is_plain(job):
            takers = [id for id in takers if self._peers.understands(id)]
        return takers

    def choose_one(self, nodes: list[bytes]) -> bytes:
        """A random one of ``nodes``, preferably a connected one."""
        return self._rng.choice(self._linked(nodes) or nodes)

    def _linked(self, nodes: list[bytes]) -> list[bytes]:
        """Return those of ``nodes`` that this node has a connection to."""
        return [id for id in nodes if self._peers.linked(id)]

    def enough(self, confirmed: list[bytes], needed: int, external: bool) -> bool:
        """Whether the nodes that ``confirmed`` a copy are enough if ``needed`` are: on as many
        hosts, if copies have to be on different ones. This node's own host counts only if it holds
        no copy itself (``external``)."""
        if len(confirmed) < needed:
            return False
        peers = self._peers
        if not peers.by_host:
            return True
        places = {peers.place(id) for id in confirmed}
        if not external:
            places.discard(peers.here())
        places.discard("")  # forgotten meanwhile
        return len(places) >= needed
