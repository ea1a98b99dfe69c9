"""The shares of one node, and of the others, in a limit (see ``limits``)."""

from typing import Final

from disque_trio.node.core.shared.policies import Policy

REFRESH: Final = 1_000  # ms between questions to the other nodes that use a queue
VALID: Final = 3_000  # ms for which what another node said remains valid
ANSWER_TIME: Final = 2_000  # ms that other nodes have to connect, and to answer
LINK_LOOK: Final = 100  # ms between checks for a connection
WANTED: Final = 2_000  # ms for which a client's wish for a job counts
SPARED: Final = 10  # ms for which a node keeps its part of ACTIVE for a client that had a job
# Jobs due within this many ms may leave together, because timers are late
TOGETHER: Final = 20


class User:
    """Another node that uses a limited queue.

    Attributes:
        last_seen: when it last said so, in ms.
        wants: it may take more jobs, as long as it has less than its share.
        in_hand: number of jobs that its clients had then.
    """

    def __init__(self, last_seen: int, wants: bool, in_hand: int) -> None:
        self.last_seen = last_seen
        self.wants = wants
        self.in_hand = in_hand


class Limit:
    """One node's view of the use of a limited queue.

    Attributes:
        name: of the queue.
        in_hand: ids of the jobs that were delivered here and are not acknowledged.
        full: when the token bucket will be full, in ms.
        users: the other nodes that use the queue, by id.
        wanted: when a client here last wanted a job, in ms. used: when one last got or ended one.
        joined: until when the other nodes count this one as wanting jobs, in ms; 0: they do not.
        asked: when they were last asked, in ms.
        asks_to_join: they were then told that this node wants jobs.
        asking: they have not all answered.
        told: jobs in hand here, as they were last told; if not all the same, the fewest.
        missed: since when a node that should be there has had no connection, in ms; 0: none is
            missing.
        reason: why nothing was delivered when a job was last wanted; empty: one was.
        excepted: other nodes were told that no jobs of it are wanted for now.
        refresh: when to ask the other nodes again, in ms; 0: not planned.
        wake: when to look at the waiting clients, in ms; 0: not planned.
        spare: when to leave to other nodes what this one does not use, in ms; 0: not planned.
    """

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.in_hand: dict[bytes, None] = {}
        self.full = 0.0
        self.users: dict[bytes, User] = {}
        self.wanted = 0
        self.used = 0
        self.joined = 0
        self.asked = 0
        self.asks_to_join = False
        self.asking = False
        self.told = 0
        self.missed = 0
        self.reason = b""
        self.excepted = False
        self.refresh = 0
        self.wake = 0
        self.spare = 0

    def sharers(self) -> int:
        """Return the number of nodes that want jobs, including this one."""
        return 1 + sum([user.wants for user in self.users.values()])

    def interval(self, policy: Policy) -> float:
        """The time from job to job on this node by the rate of ``policy``, in ms."""
        return policy.period * 1000 * self.sharers() / policy.rate

    def early(self, policy: Policy) -> float:
        """Return how long before the bucket is full ``policy`` allows the next delivery, in ms."""
        burst = policy.burst / self.sharers()
        return max((burst - 1) * self.interval(policy), float(TOGETHER))

    def most_debt(self, policy: Policy) -> float:
        """Return how long the bucket can take to be full after a delivery that ``policy`` allows,
        in ms."""
        return self.early(policy) + self.interval(policy)

    def rate_due(self, policy: Policy, now: int) -> int:
        """Return when the rate of ``policy`` allows the next job, in ms; 0: it does so now."""
        if not policy.rate:
            return 0
        due = self.full - self.early(policy)
        return int(due) + 1 if due > now else 0

    def count(self, policy: Policy, now: int) -> None:
        """Count a delivery at ``now`` (ms) for the rate of ``policy``."""
        if policy.rate:
            self.full = max(self.full, float(now)) + self.interval(policy)

    def debt(self, now: int) -> int:
        """Return how long the bucket takes to be full, in ms."""
        return int(self.full - now) if self.full > now else 0

    def owe(self, debt: int, policy: Policy, now: int) -> None:
        """Note that another node has said at ``now`` (ms) that its bucket takes ``debt`` ms to be
        full. It may say anything."""
        self.full = max(self.full, now + min(float(debt), self.most_debt(policy)))

    def is_used_up(self, own: bytes, active: int) -> bool:
        """Whether this node, with the ID ``own``, has as many of ``active`` jobs in hand as it may;
        0: there is no limit."""
        return active > 0 and len(self.in_hand) >= self.room(own, active)

    def heard(self, sender: bytes, wants: bool, in_hand: int, now: int) -> None:
        """Note what the node ``sender`` has said of itself at ``now`` (ms)."""
        if wants or in_hand:
            self.users[sender] = User(now, wants, in_hand)
        else:
            self.users.pop(sender, None)

    def forget_silent(self, now: int) -> None:
        """Forget the nodes that have said nothing for too long at ``now`` (ms)."""
        for id, user in list(self.users.items()):
            if now - user.last_seen >= VALID:
                del self.users[id]

    def set_back(self, back: int) -> None:
        """Move all times ``back`` as far as the clock was set back (ms), and plan nothing."""
        self.full -= back
        self.wanted -= back
        self.used -= back
        self.joined = self.spare = self.missed = 0
        for user in self.users.values():
            user.last_seen -= back

    def share(self, own: bytes, active: int) -> int:
        """Return the share of this node, with the ID ``own``, of ``active`` jobs in hand."""
        return _divide(self._left(active), [own, *self._wanting()])[own]

    def room(self, own: bytes, active: int) -> int:
        """Return how many of ``active`` jobs may be in hand on this node, with the ID ``own``: its
        share of what those leave that have more than their shares, and keep what they have."""
        wanting = self._wanting()
        left = self._left(active)
        while True:
            shares = _divide(left, [own, *wanting])
            over = [id for id, in_hand in wanting.items() if in_hand > shares[id]]
            if not over:
                return shares[own]
            left -= sum([wanting.pop(id) for id in over])

    def lacking(self, own: bytes, active: int) -> set[bytes]:
        """Return the other nodes that want jobs, and have all of their shares of ``active`` jobs in
        hand. This node, with the ID ``own``, has none if the others do not know of it."""
        wanting = self._wanting()
        if not wanting:
            return set()
        shares = _divide(self._left(active), [own, *wanting] if self.joined else [*wanting])
        return {id for id, in_hand in wanting.items() if in_hand >= shares[id]}

    def _wanting(self) -> dict[bytes, int]:
        """Return what the other nodes that want jobs have in hand, by node ID."""
        return {id: user.in_hand for id, user in self.users.items() if user.wants}

    def _left(self, active: int) -> int:
        """Return how many of ``active`` jobs the nodes leave that have some and want no more."""
        return active - sum([user.in_hand for user in self.users.values() if not user.wants])


def _divide(jobs: int, nodes: list[bytes]) -> dict[bytes, int]:
    """Return the share of each node of ``jobs``; 0 if there are none left."""
    share, rest = divmod(max(jobs, 0), len(nodes))
    return {id: share + 1 if rank < rest else share for rank, id in enumerate(sorted(nodes))}
