"""Policies for tests of the core."""

from disque_trio.node.core.shared.policies import Policy
from tests.support.node_bench import Bench


def set_policy(
    *benches: Bench,
    name: bytes = b"q",
    attempts: int = 0,
    dead: bytes = b"",
    backoff: tuple[int, int] = (0, 0),
    dead_ttl: int = 0,
    rate: tuple[int, int] = (0, 0),
    burst: int = 0,
    active: int = 0,
    groups: str = "",
    **of_groups: int,
) -> None:
    """Give the queue ``name`` a policy on each of these nodes; ``backoff`` is in ms, ``rate`` jobs
    and s. ``of_groups``: the options whose names begin with ``group_``."""
    for bench in benches:
        policies = bench.node.policies
        policy = Policy(name)
        policy.attempts = attempts
        policy.dead = dead
        policy.backoff_min, policy.backoff_max = backoff
        policy.dead_ttl = dead_ttl
        policy.rate, policy.period = rate
        policy.burst = burst
        policy.active = active
        policy.groups = ("", "fair", "fifo").index(groups)
        for option, value in of_groups.items():
            setattr(policy, option, value)
        policies.put(policies.make(name, policy, bench.node.id, bench.now))
