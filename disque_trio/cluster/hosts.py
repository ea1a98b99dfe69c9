"""Groups nodes by host, so that the copies of a job can survive the loss of a whole host.

A host is an address: nodes that others know under the same one are on the same host. An address
of the own machine, which may have several, is that of this node's host. All of it is computed when
the table of nodes changes, not when it is asked for.
"""

from collections.abc import Callable, Mapping, Sequence

from disque_trio.cluster.members import Member


class Hosts:
    """The hosts of a cluster, as one node sees them.

    Attributes:
        here: this node's own; empty until its address is known.
        of: by the id of another node.
        partners: of each other host the reachable node that gets this node's copies: the first
            node of a host has the first of the others, and so on.
        count: of all hosts, this node's own included.
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
        """Take in the table: this node's own address, and the other nodes. ``is_own`` says whether
        an address is one of this machine's."""
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
        # As long as it is not known which nodes are on this host, none counts as elsewhere.
        self._others = len(by_host) if ip else 0
        mine = sum(1 for id, place in of.items() if place == ip and known[id].port < port)
        self.partners = [sorted(nodes)[mine % len(nodes)][1] for nodes in by_host.values()]

    def room(self, external: bool) -> int:
        """How many hosts can take a copy. ``external``: this node holds none itself, so another
        one on its host can."""
        return self._others + (external and self._shared)
