"""Groups nodes by host, so that the copies of a job can survive the loss of a whole host.

A host is an address: nodes with the same address are on the same host. Any address of this machine,
which may have several, counts as this node's host. Everything is computed when the table of nodes
changes, not when it is needed.
"""

from collections.abc import Callable, Mapping, Sequence

from disque_trio.cluster.members import Member


class Hosts:
    """The hosts of a cluster, as one node sees them.

    Attributes:
        here: this node's own host; empty until its address is known.
        of: the host of another node, by id.
        partners: for each other host, the reachable node that gets this node's copies: the first
            node on a host uses the first on each other one, and so on.
        count: number of hosts, including this node's own.
    """

    def __init__(self) -> None:
        self.here = ""
        self.of: dict[bytes, str] = {}
        self.partners: list[bytes] = []
        self.count = 1
        self._others = 0
        self._shared = False

    def compute(
        self,
        ip: str,
        port: int,
        known: Mapping[bytes, Member],
        reachable: Sequence[bytes],
        is_own: Callable[[str], bool],
    ) -> None:
        """Compute everything from this node's own address and the other nodes. ``is_own`` tells
        whether an address is one of this machine's."""
        self.here = ip
        of: dict[bytes, str] = {}
        for id, member in known.items():
            if member.ip:
                of[id] = ip if is_own(member.ip) else member.ip
        self.of = of
        self.count = len({*of.values(), ip} - {""}) or 1
        by_host: dict[str, list[tuple[int, bytes]]] = {}
        for id in reachable:
            place = of.get(id, "")
            if place:
                by_host.setdefault(place, []).append((known[id].port, id))
        self._shared = by_host.pop(ip, None) is not None
        # Until it is known which nodes are on this host, none counts as elsewhere.
        self._others = len(by_host) if ip else 0
        mine = sum(1 for id, place in of.items() if place == ip and known[id].port < port)
        self.partners = [sorted(nodes)[mine % len(nodes)][1] for nodes in by_host.values()]

    def room(self, external: bool) -> int:
        """Return how many hosts can take a copy.

        ``external``: this node holds none itself, so another node on its host can.
        """
        return self._others + (external and self._shared)
