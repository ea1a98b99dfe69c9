"""What a node knows of a limited queue, and of the other nodes that use it (see ``limits``)."""

from typing import Final

from disque_trio.node.core.policies import Policy

# ms of jobs that may leave together although they are due one after the other: a timer is late
TOGETHER: Final = 20


class User:
    """Another node that uses a limited queue.

    Attributes:
        heard: when it said so last, ms.
        wants: it may take more jobs, as long as it has less than its share.
        in_hand: jobs that its clients had then.
    """

    def __init__(self, heard: int, wants: bool, in_hand: int) -> None:
        self.heard = heard
        self.wants = wants
        self.in_hand = in_hand


class Limit:
    """What one node knows of the use of a limited queue.

    Attributes:
        name: of the queue.
        in_hand: ids of the jobs that were delivered here and are not acknowledged.
        full: when the bucket of tokens will be full, ms.
        users: the other nodes that use the queue, by id.
        wanted: when a client here wanted a job last, ms.
        joined: until when the other nodes know that this one wants jobs, ms; 0: they do not.
        asked: when they were asked last, ms. asks_to_join: they were told so then.
        asking: they have not all answered.
        missed: since when one that should be there has had no connection, ms; 0: it has one.
        reason: why nothing was delivered when a job was wanted last; empty: it was.
        refresh: when to ask the other nodes again, ms; 0: not planned.
        wake: when to look at the clients that wait, ms; 0: not planned.
    """

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.in_hand: dict[bytes, None] = {}
        self.full = 0.0
        self.users: dict[bytes, User] = {}
        self.wanted = 0
        self.joined = 0
        self.asked = 0
        self.asks_to_join = False
        self.asking = False
        self.missed = 0
        self.reason = b""
        self.refresh = 0
        self.wake = 0

    def sharers(self) -> int:
        """How many nodes want jobs, this one included."""
        return 1 + sum([user.wants for user in self.users.values()])

    def interval(self, policy: Policy) -> float:
        """The ms from job to job on this node by the rate of ``policy``."""
        return policy.period * 1000 * self.sharers() / policy.rate

    def early(self, policy: Policy) -> float:
        """How long before its bucket is full, ms, the next job can be delivered by ``policy``."""
        burst = policy.burst / self.sharers()
        return max((burst - 1) * self.interval(policy), float(TOGETHER))

    def shares(self, own: bytes, active: int) -> dict[bytes, int]:
        """How many of ``active`` jobs are for each node that wants some, by id. Others keep what
        they have. ``own``: id of this node."""
        nodes = sorted([own, *[id for id, user in self.users.items() if user.wants]])
        kept = sum([user.in_hand for user in self.users.values() if not user.wants])
        share, rest = divmod(max(active - kept, 0), len(nodes))
        return {id: share + 1 if rank < rest else share for rank, id in enumerate(nodes)}

    def room(self, own: bytes, active: int) -> int:
        """How many of ``active`` jobs may be in hand on this node, whose id is ``own``."""
        shares = self.shares(own, active)
        room = shares[own]
        for id, share in shares.items():
            if id != own:
                room -= max(self.users[id].in_hand - share, 0)
        return room
