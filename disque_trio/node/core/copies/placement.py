"""Chooses the nodes that get the copies of a job.

A node sends its copies to the same partners for a while: so the packets about jobs that come, and
go, together join, however many nodes there are. Then it goes on to other partners, so that no queue
hangs on few nodes.
"""

from typing import Final

from disque_trio.node.core.jobs.job import FLAG_TRAILER, Job
from disque_trio.node.core.queues.core import Core

STAY: Final = 128  # jobs whose copies go to the same partners


class Partners:
    """The other nodes in the order in which this one, ``own``, asks them for copies.

    All nodes stand in a ring, ordered by id. A node begins behind itself; every ``STAY`` jobs it
    goes a step further. If all nodes have as many jobs, all hold as many copies at any time.
    """

    def __init__(self) -> None:
        self._nodes: list[bytes] = []  # for which the order holds
        self._order: list[bytes] = []
        self._left = STAY

    def order(self, own: bytes, nodes: list[bytes]) -> list[bytes]:
        """The order of ``nodes``, for one job. Do not change the list."""
        if nodes != self._nodes:
            self._arrange(own, nodes)
        if not self._left:
            self._left = STAY
            self._order = [*self._order[1:], *self._order[:1]]
        self._left -= 1
        return self._order

    def pass_over(self, ids: list[bytes]) -> None:
        """Ask the nodes ``ids`` last: they have not answered."""
        late = [id for id in self._order if id in ids]
        if self._order[len(self._order) - len(late) :] != late:
            self._order = [*(id for id in self._order if id not in late), *late]

    def _arrange(self, own: bytes, nodes: list[bytes]) -> None:
        """Find the order of other ``nodes`` than before, but stay with the partners so far."""
        stayed = [id for id in self._order if id in nodes]
        after = stayed[0] if stayed else own
        ring = sorted(nodes)
        self._order = [id for id in ring if id >= after] + [id for id in ring if id < after]
        self._nodes = list(nodes)


class Placement:
    """Chooses nodes for the copies of a job, on different hosts where possible."""

    def __init__(self, core: Core) -> None:
        self._trailers = core.store.trailers
        self._peers = core.peers
        self._replicas = core.store.replicas
        self._rng = core.rng
        self._partners = Partners()

    def choose(self, job: Job, count: int, external: bool) -> list[bytes]:
        """Up to ``count`` reachable nodes that do not have ``job``, connected ones first.
        ``external``: this node is not going to hold the job."""
        takers = self._takers(job)
        if self._peers.by_host:
            return self._choose_hosts(job, takers, count, external)
        holders = job.delivered
        fresh = holders is None or holders == self._replicas.alone
        if fresh and len(takers) <= count:
            return takers
        chosen: list[bytes] = []
        others: list[bytes] = []
        for id in takers:
            if fresh or holders is None or id not in holders:
                if self._peers.linked(id):
                    chosen.append(id)
                    if len(chosen) == count:
                        return chosen
                else:
                    others.append(id)
        return chosen + others[: count - len(chosen)]

    def _choose_hosts(
        self, job: Job, takers: list[bytes], count: int, external: bool
    ) -> list[bytes]:
        """Up to ``count`` of ``takers`` that do not have ``job``, each on a host of its own: on
        hosts where no node has it, then on hosts where none has confirmed it yet; connected ones
        first. ``external``: this node is not going to hold the job, so another on its host can."""
        peers = self._peers
        own = self._replicas.own
        here = peers.here()
        if not here:
            return []  # until that is known, a node on this host may seem to be elsewhere
        holders = job.delivered or ()
        partners = peers.partners()
        if not external and (not holders or (len(holders) == 1 and holders[0] == own)):
            linked = self._linked([id for id in takers if id in partners])
            if len(linked) >= count:
                return linked[:count]
        taken = {peers.place(id) for id in job.confirmed or ()}
        if not external:
            taken.add(here)
        asked = {peers.place(id) for id in holders if id != own}
        free: dict[str, list[bytes]] = {}
        for id in takers:
            place = peers.place(id)
            if id not in holders and place and place not in taken:
                free.setdefault(place, []).append(id)
        chosen: list[bytes] = []
        for fresh in (True, False):
            places = [place for place in free if (place not in asked) == fresh]
            linked_to = [place for place in places if self._linked(free[place])]
            rest = [place for place in places if place not in linked_to]
            for place in [*linked_to, *rest][: count - len(chosen)]:
                nodes = self._linked(free[place]) or free[place]
                wanted = [id for id in nodes if id in partners]
                chosen.append(wanted[0] if wanted else nodes[0])
        return chosen

    def pass_over(self, ids: list[bytes]) -> None:
        """Choose the nodes ``ids`` last for a while: they have not confirmed a copy in time."""
        self._partners.pass_over(ids)

    def _takers(self, job: Job) -> list[bytes]:
        """The nodes that can take a copy of ``job``, in the order in which to ask them."""
        takers = self._partners.order(self._replicas.own, self._peers.takers())
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
