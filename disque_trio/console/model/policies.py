"""The policies of queues, and which one applies to a queue."""

from collections.abc import Iterable

from disque_trio.client import Policy
from disque_trio.console.model.names import to_bytes
from disque_trio.glob import compile_glob, glob_literals, is_glob

MAX_PATTERN_NAME = 4096  # bytes: longer names follow * only


class Policies:
    """All policies of a cluster, as one node has them."""

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self._exact: dict[str, Policy] = {}
        self._any: Policy | None = None
        patterns: list[tuple[int, bytes, Policy]] = []
        for policy in policies:
            name = to_bytes(policy.name)
            if name == b"*":
                self._any = policy
            elif is_glob(name):
                patterns.append((-glob_literals(name), name, policy))
            else:
                self._exact[policy.name] = policy
        patterns.sort(key=lambda entry: entry[:2])
        self._patterns = [(compile_glob(name), policy) for _, name, policy in patterns]

    @property
    def dead(self) -> set[str]:
        """The queues that dead letters go to by some policy."""
        found = [*self._exact.values(), *(policy for _, policy in self._patterns)]
        if self._any is not None:
            found.append(self._any)
        return {policy.dead for policy in found if policy.dead}

    def of(self, queue: str) -> Policy | None:
        """The one that applies to ``queue``; None: none does."""
        name = to_bytes(queue)
        if len(name) > MAX_PATTERN_NAME:
            return self._any
        exact = self._exact.get(queue)
        if exact is not None:
            return exact
        for pattern, policy in self._patterns:
            if pattern.fullmatch(name):
                return policy
        return self._any
