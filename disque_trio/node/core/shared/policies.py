"""The policies of queues: what happens to jobs if ADDJOB does not say.

A policy belongs to a name: of a queue, a pattern (``mail.*``) or ``*``, the default of all queues.
Exactly one policy applies to a queue: that of its exact name or, failing that, that of the pattern
with the most literal characters (if there are several, the first by name).

All nodes of a cluster share the same policies (see ``versions``).
"""

from collections.abc import Callable
from typing import Final

from disque_trio.glob import Globs, is_glob
from disque_trio.node.core.shared.bindings import TOPIC
from disque_trio.node.core.shared.versions import (
    Entry,
    Shared,
    SharedError,
    Versions,
    name_in,
)
from disque_trio.notation.rates import PERIODS
from disque_trio.policy_options import NAME, OPTIONS, SECONDS, WORD, PolicyOption
from disque_trio.protocol.bus import MAX_NAME_IN_FIELDS
from disque_trio.protocol.fields import Field, pack_number, unpack_number

MAX_POLICIES: Final = 10_000  # that clients may set
MAX_PATTERNS: Final = 1_000  # of these: a new queue is compared with each
MAX_SIZE: Final = 4 * 1024 * 1024  # bytes of all that clients may set
DEAD_SUFFIX: Final = b".dead"  # of dead-letter queues that no policy names
_CACHED: Final = 10_000  # queues whose policies are cached
_CACHED_NAME: Final = 1_024  # bytes; longer names are looked up each time

# Of the options: attribute, type and value if it is not set. The packed forms of nodes are compared
# byte for byte, so the fields stay in the order of the first release.
_FIELDS: Final = sorted(
    [
        (attribute, type, option.unset)
        for option in OPTIONS
        for attribute, type in option.fields.items()
    ],
    key=lambda field: field[0] not in ("dead", "retry"),
)

# Values of GROUPS, as in the table.
FAIR: Final = 1
FIFO: Final = 2


class Policy(Shared):
    """The settings for the jobs of a queue.

    Attributes:
        name: the queue, or the pattern, that it was set for.
        attempts: deliveries until a job is dead; 0: no limit.
        dead: the dead-letter queue; empty: none, or with ``attempts`` the queue's name and
            ``DEAD_SUFFIX``, as ``Policies.of`` says.
        backoff_min, backoff_max: pauses before a job is queued again, in ms; 0: none.
        dead_ttl: s that a dead letter lives; 0: not set.
        ttl: s; 0: not set.
        retry: s; -1: not set.
        replicate: copies; 0: not set.
        maxlen: jobs that may be queued on all nodes together; 0: no limit.
        maxbytes: bytes that their bodies may have; 0: no limit.
        rate, period: how many jobs may be delivered in how many s; 0 and 0: no limit.
        burst: how many of these at once after a pause; 0: not set.
        active: jobs that may be in hand (delivered, not acknowledged) at once; 0: no limit.
        groups: how the groups of a queue are served, FAIR or FIFO; 0: jobs are not grouped.
        delay: ms before a job is queued; 0: none.
        group_active, group_rate, group_period, group_burst: as ``active`` and so on, for each group
            of jobs.
    """

    def __init__(self, name: bytes) -> None:
        super().__init__()
        self.name = name
        self.attempts = 0
        self.dead = b""
        self.backoff_min = 0
        self.backoff_max = 0
        self.dead_ttl = 0
        self.ttl = 0
        self.retry = -1
        self.replicate = 0
        self.maxlen = 0
        self.maxbytes = 0
        self.rate = 0
        self.period = 0
        self.burst = 0
        self.active = 0
        self.groups = 0
        self.delay = 0
        self.group_active = 0
        self.group_rate = 0
        self.group_period = 0
        self.group_burst = 0
        self._of_groups: Policy | None = None

    def copy(self) -> "Policy":
        """Return a policy with the same name and options."""
        other = Policy(self.name)
        for attribute, _, _ in _FIELDS:
            setattr(other, attribute, getattr(self, attribute))
        other.unknown = list(self.unknown)
        return other

    def forget(self, option: PolicyOption) -> None:
        """Forget the values of ``option`` that only newer releases know."""
        if self.unknown:
            types = option.fields.values()
            self.unknown = [field for field in self.unknown if field[0] not in types]

    def is_pattern(self) -> bool:
        """Whether it was set for a pattern rather than one queue."""
        return is_glob(self.name)

    def needs_extensions(self) -> bool:
        """Whether jobs that it applies to may need trailers."""
        return bool(self.attempts or self.dead or self.backoff_max or self.dead_ttl)

    def is_bounded(self) -> bool:
        """Whether it limits how much is queued."""
        return self.maxlen > 0 or self.maxbytes > 0

    def is_limited(self) -> bool:
        """Whether it limits how fast jobs are delivered, or how many are in hand."""
        return self.rate > 0 or self.active > 0

    def limits_groups(self) -> bool:
        """Whether it does so for each group of jobs."""
        return self.groups > 0 and (self.group_rate > 0 or self.group_active > 0)

    def of_groups(self) -> "Policy":
        """A policy with its limits of each group, as those of a queue. Do not change either."""
        found = self._of_groups
        if found is None:
            found = self._of_groups = Policy(self.name)
            if self.limits_groups():
                found.active = self.group_active
                found.rate, found.period = self.group_rate, self.group_period
                found.burst = self.group_burst
        return found

    def problem(self) -> str:
        """Return which option is wrong, or why they cannot be combined; empty: nothing is."""
        for option in OPTIONS:
            most = option.most * 1000 if option.kind == SECONDS else option.most
            for attribute in option.fields:
                value = getattr(self, attribute)
                if (len(value) if option.kind == NAME else value) > most:
                    return option.wanted
        if self.dead and self.dead == self.name:
            return "DEAD must be another queue"
        if self.backoff_min > self.backoff_max:
            return "BACKOFF: min must not be greater than max"
        if self.backoff_max and not self.backoff_min:
            return "BACKOFF: min must be greater than 0"
        if self.retry == 0 and self.replicate != 1:
            return "RETRY 0 (at-most-once delivery) needs REPLICATE 1"
        if self.retry == 0 and self.attempts:
            return "RETRY 0 (at-most-once delivery) cannot be combined with ATTEMPTS"
        if self.ttl and self.delay >= self.ttl * 1000:
            return "DELAY must be less than TTL"
        if self.burst and not self.rate:
            return "BURST needs RATE"
        if self.group_burst and not self.group_rate:
            return "GROUPBURST needs GROUPRATE"
        if (self.group_active or self.group_rate) and not self.groups:
            return f"{'GROUPACTIVE' if self.group_active else 'GROUPRATE'} needs GROUPS"
        if (self.rate == 0) != (self.period == 0):
            return "RATE needs a time"
        if (self.group_rate == 0) != (self.group_period == 0):
            return "GROUPRATE needs a time"
        return ""

    def fields(self) -> list[Field]:
        fields: list[Field] = []
        for attribute, type, unset in _FIELDS:
            value = getattr(self, attribute)
            if value != unset:
                fields.append((type, value if isinstance(value, bytes) else pack_number(value)))
        return fields + self.unknown


NO_POLICY: Final = Policy(b"")  # of a queue to which none applies


class Policies(Versions[Policy]):
    """The policies that a node knows.

    Attributes:
        patterns: number of policies for patterns.
        limited: how many limit deliveries, of queues or of groups.
        grouped: how many group jobs.
        on_change: called after changes.
    """

    def __init__(self) -> None:
        super().__init__(frozenset([type for _, type, _ in _FIELDS]))
        self.patterns = 0
        self.limited = 0
        self.grouped = 0
        self.on_change: Callable[[], None] | None = None
        self._cache: dict[bytes, Policy] = {}
        self._globs: Globs[Policy] | None = None

    def of(self, queue: bytes) -> Policy:
        """The policy that applies to ``queue``; NO_POLICY if none does."""
        if not self.count:
            return NO_POLICY
        policy = self._cache.get(queue)
        if policy is None:
            policy = self._find(queue)
            if len(queue) <= _CACHED_NAME:
                if len(self._cache) >= _CACHED:
                    self._cache.clear()
                self._cache[queue] = policy
        return policy

    def ask_length(self, addjob: list[bytes]) -> bool:
        """Whether the request ``addjob`` depends on how much is queued, as far as one can tell."""
        for option in addjob[4:]:
            if len(option) == 6 and option.lower() == b"maxlen":
                return True
        if not self.count or len(addjob) < 2:
            return False
        # A topic may be bound to any queues.
        return addjob[1].startswith(TOPIC) or self.of(addjob[1]).is_bounded()

    def as_set(self, queue: bytes) -> Policy:
        """The policy that applies to ``queue``, as it was set for it or a pattern."""
        policy = self.named(queue) if not is_glob(queue) else None
        return self._matching(queue) if policy is None else policy

    def _find(self, queue: bytes) -> Policy:
        policy = self.as_set(queue)
        dead = policy.dead
        keeps = dead == queue  # a pattern may match its own dead-letter queue: its jobs stay there
        if policy.attempts and not dead:
            dead = queue + DEAD_SUFFIX
            keeps = queue.endswith(DEAD_SUFFIX) or len(dead) > MAX_NAME_IN_FIELDS
        if policy is not NO_POLICY and (keeps or dead != policy.dead):
            policy = policy.copy()
            policy.dead = b"" if keeps else dead
            policy.attempts = 0 if keeps else policy.attempts
        return policy

    def _matching(self, queue: bytes) -> Policy:
        """The policy of the most specific pattern that matches ``queue``."""
        if self._globs is None:
            found = [policy for policy in self.all() if policy.is_pattern()]
            self._globs = Globs([(policy.name, policy) for policy in found])
        return self._globs.of(queue) or NO_POLICY

    # ---- changes --------------------------------------------------------------------------------

    def check(self, name: bytes, value: Policy, grows: int) -> None:
        if self.named(name) is None:
            if self.count >= MAX_POLICIES:
                raise SharedError(
                    f"there are {MAX_POLICIES} policies already, the maximum: "
                    "use patterns, or QDEL some"
                )
            if self.patterns >= MAX_PATTERNS and value.is_pattern():
                raise SharedError(
                    f"there are {MAX_PATTERNS} policies of patterns already, the maximum"
                )
        if grows > 0 and self.size + grows > MAX_SIZE:
            raise SharedError(f"all policies together would have more than {MAX_SIZE} bytes")

    def clear(self) -> None:
        self.patterns = 0
        self.limited = 0
        self.grouped = 0
        super().clear()

    def account(self, entry: Entry[Policy], step: int) -> None:
        super().account(entry, step)
        policy = entry.value
        if policy is not None:
            if policy.is_pattern():
                self.patterns += step
            if policy.is_limited() or policy.limits_groups():
                self.limited += step
            if policy.groups:
                self.grouped += step

    def changed(self) -> None:
        self._cache.clear()
        self._globs = None
        if self.on_change is not None:
            self.on_change()

    def read(self, values: dict[int, bytes]) -> Policy:
        policy = Policy(name_in(values))
        for attribute, type, unset in _FIELDS:
            value = values.get(type)
            if value is not None:
                setattr(policy, attribute, value if unset == b"" else unpack_number(value))
        for option in OPTIONS:
            if option.kind == WORD and getattr(policy, option.name) > len(option.words):
                _set_aside(policy, values, [option.name])
        if policy.rate and policy.period and policy.period not in PERIODS.values():
            _set_aside(policy, values, ["rate", "period", "burst"])
        period = policy.group_period
        if policy.group_rate and period and period not in PERIODS.values():
            _set_aside(policy, values, ["group_rate", "group_period", "group_burst"])
        return policy


def _set_aside(policy: Policy, values: dict[int, bytes], attributes: list[str]) -> None:
    """Unset ``attributes``, whose ``values`` only newer releases know, but keep these."""
    for attribute, type, unset in _FIELDS:
        if attribute in attributes and type in values:
            setattr(policy, attribute, unset)
            policy.unknown.append((type, values[type]))
