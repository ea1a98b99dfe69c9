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
    MAX_NAME,
    Entry,
    Shared,
    SharedError,
    Versions,
    name_in,
    number_in,
)
from disque_trio.notation.rates import PERIODS
from disque_trio.protocol.bus import MAX_NAME_IN_FIELDS
from disque_trio.protocol.fields import Field, pack_number

MAX_POLICIES: Final = 10_000  # that clients may set
MAX_PATTERNS: Final = 1_000  # of these: a new queue is compared with each
MAX_SIZE: Final = 4 * 1024 * 1024  # bytes of all that clients may set
MAX_VALUE: Final = 2**32 - 1  # of numeric options
MAX_BYTES: Final = 2**48  # of MAXBYTES
DEAD_SUFFIX: Final = b".dead"  # of dead-letter queues that no policy names
MAX_REPLICATE: Final = 65_535
MAX_MILLISECONDS: Final = MAX_VALUE * 1000  # of a BACKOFF
_CACHED: Final = 10_000  # queues whose policies are cached
_CACHED_NAME: Final = 1_024  # bytes; longer names are looked up each time

# Types of the fields of a policy.
_ATTEMPTS: Final = 5
_DEAD: Final = 6
_BACKOFF_MIN: Final = 7
_BACKOFF_MAX: Final = 8
_DEAD_TTL: Final = 9
_TTL: Final = 10
_RETRY: Final = 11
_REPLICATE: Final = 12
_MAXLEN: Final = 20
_RATE: Final = 21
_PERIOD: Final = 22
_BURST: Final = 23
_ACTIVE: Final = 24
_MAXBYTES: Final = 25
_GROUPS: Final = 30

_TYPES: Final = frozenset((
    _ATTEMPTS, _DEAD, _BACKOFF_MIN, _BACKOFF_MAX, _DEAD_TTL, _TTL, _RETRY, _REPLICATE, _MAXLEN,
    _RATE, _PERIOD, _BURST, _ACTIVE, _MAXBYTES, _GROUPS,
))  # fmt: skip

# Values of GROUPS.
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

    def copy(self) -> "Policy":
        """Return a policy with the same name and options."""
        other = Policy(self.name)
        other.attempts = self.attempts
        other.dead = self.dead
        other.backoff_min = self.backoff_min
        other.backoff_max = self.backoff_max
        other.dead_ttl = self.dead_ttl
        other.ttl = self.ttl
        other.retry = self.retry
        other.replicate = self.replicate
        other.maxlen = self.maxlen
        other.maxbytes = self.maxbytes
        other.rate = self.rate
        other.period = self.period
        other.burst = self.burst
        other.active = self.active
        other.groups = self.groups
        other.unknown = list(self.unknown)
        return other

    def forget_rate(self) -> None:
        """Forget a RATE that only newer releases know."""
        self._forget((_RATE, _PERIOD, _BURST))

    def forget_groups(self) -> None:
        """Forget a value of GROUPS that only newer releases know."""
        self._forget((_GROUPS,))

    def _forget(self, types: tuple[int, ...]) -> None:
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

    def problem(self) -> str:
        """Return which option is wrong, or why they cannot be combined; empty: nothing is."""
        numbers = (
            self.attempts, self.dead_ttl, self.ttl, self.retry, self.maxlen, self.rate, self.burst,
            self.active,
        )  # fmt: skip
        if max(numbers) > MAX_VALUE:
            return f"options must be numbers up to {MAX_VALUE}"
        if self.replicate > MAX_REPLICATE:
            return f"REPLICATE must be a number from 0 to {MAX_REPLICATE}"
        if self.maxbytes > MAX_BYTES:
            return f"MAXBYTES must be a number from 0 to {MAX_BYTES}"
        if self.backoff_max > MAX_MILLISECONDS:
            return f"BACKOFF must be two numbers of seconds from 0 to {MAX_VALUE}"
        if len(self.dead) > MAX_NAME:
            return f"DEAD must have {MAX_NAME} bytes at most"
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
        if self.burst and not self.rate:
            return "BURST needs RATE"
        if (self.rate == 0) != (self.period == 0):
            return "RATE needs a time"
        return ""

    def fields(self) -> list[Field]:
        fields: list[Field] = []
        if self.dead:
            fields.append((_DEAD, self.dead))
        if self.retry >= 0:
            fields.append((_RETRY, pack_number(self.retry)))
        for type, value in (
            (_ATTEMPTS, self.attempts),
            (_BACKOFF_MIN, self.backoff_min),
            (_BACKOFF_MAX, self.backoff_max),
            (_DEAD_TTL, self.dead_ttl),
            (_TTL, self.ttl),
            (_REPLICATE, self.replicate),
            (_MAXLEN, self.maxlen),
            (_MAXBYTES, self.maxbytes),
            (_RATE, self.rate),
            (_PERIOD, self.period),
            (_BURST, self.burst),
            (_ACTIVE, self.active),
            (_GROUPS, self.groups),
        ):
            if value:
                fields.append((type, pack_number(value)))
        return fields + self.unknown


NO_POLICY: Final = Policy(b"")  # of a queue to which none applies


class Policies(Versions[Policy]):
    """The policies that a node knows.

    Attributes:
        patterns: number of policies for patterns.
        limited: how many limit deliveries.
        grouped: how many group jobs.
        on_change: called after changes.
    """

    def __init__(self) -> None:
        super().__init__(_TYPES)
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
            if policy.is_limited():
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
        policy.dead = values.get(_DEAD, b"")
        policy.attempts = number_in(values, _ATTEMPTS, 0)
        policy.backoff_min = number_in(values, _BACKOFF_MIN, 0)
        policy.backoff_max = number_in(values, _BACKOFF_MAX, 0)
        policy.dead_ttl = number_in(values, _DEAD_TTL, 0)
        policy.ttl = number_in(values, _TTL, 0)
        policy.retry = number_in(values, _RETRY, -1)
        policy.replicate = number_in(values, _REPLICATE, 0)
        policy.maxlen = number_in(values, _MAXLEN, 0)
        policy.maxbytes = number_in(values, _MAXBYTES, 0)
        policy.active = number_in(values, _ACTIVE, 0)
        policy.groups = number_in(values, _GROUPS, 0)
        if policy.groups > FIFO:
            policy.groups = 0
            policy.unknown.append((_GROUPS, values[_GROUPS]))
        policy.rate = number_in(values, _RATE, 0)
        policy.period = number_in(values, _PERIOD, 0)
        policy.burst = number_in(values, _BURST, 0)
        if policy.rate and policy.period and policy.period not in PERIODS.values():
            policy.rate = policy.period = policy.burst = 0
            policy.unknown += [
                (type, values[type]) for type in (_RATE, _PERIOD, _BURST) if type in values
            ]
        return policy
