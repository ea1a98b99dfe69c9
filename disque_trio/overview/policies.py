"""The policies of queues, and which one applies to a queue."""

from collections.abc import Iterable

from disque_trio.client import Policy, policies
from disque_trio.glob import Globs, is_glob
from disque_trio.overview.names import to_bytes
from disque_trio.respclient.connection import Reply


class Policies:
    """All policies of a cluster, as one node reports them."""

    def __init__(self, known: Iterable[Policy] = ()) -> None:
        self._all = {to_bytes(policy.name): policy for policy in known}
        self._globs = Globs([entry for entry in self._all.items() if is_glob(entry[0])])

    @classmethod
    def read(cls, reply: Iterable[Reply]) -> "Policies":
        """Read a node's reply to QGET without a queue."""
        return cls(policy for policy in map(policies.policy, reply) if policy is not None)

    @property
    def dead(self) -> set[str]:
        """The queues to which some policy sends dead letters."""
        return {policy.dead for policy in self._all.values() if policy.dead}

    def of(self, queue: str) -> Policy | None:
        """The policy that applies to ``queue``, or None."""
        name = to_bytes(queue)
        exact = None if is_glob(name) else self._all.get(name)
        return exact or self._globs.of(name)
