"""The policies of queues: what is to happen with jobs where ADDJOB does not say it.

A policy belongs to a name: that of a queue, a pattern (``mail.*``) or ``*``, the default of all
queues. One policy applies to a queue, as a whole: that of its exact name, else that of the
pattern with the most literal characters (among equals the first by name).

All nodes of a cluster are to know the same policies. Each change has a version: a logical clock and
the id of the node that made it, and of two policies of a name the one with the higher version
counts, so that the order in which changes arrive does not matter. What was deleted is remembered
for a while, or a node that was away would bring it back.
"""

import re
from hashlib import blake2b
from typing import Final

from disque_trio.glob import glob_expression, glob_literals, is_glob
from disque_trio.protocol.fields import (
    FieldsError,
    pack_fields,
    pack_number,
    unpack_fields,
    unpack_number,
)
from disque_trio.protocol.serialjob import NODE_ID_LENGTH

MAX_POLICIES: Final = 10_000  # that clients may set
MAX_PATTERNS: Final = 1_000  # of them: a queue that is new is compared with each
MAX_SIZE: Final = 4 * 1024 * 1024  # bytes of all that clients may set
MAX_NAME: Final = 4_096  # bytes of a name, and of that of a queue of dead letters
MAX_CLOCK: Final = 2**48
MAX_VALUE: Final = 2**32 - 1  # of the options that are numbers
MAX_MILLISECONDS: Final = MAX_VALUE * 1000  # of a BACKOFF
MAX_DELETED: Final = 10_000
DELETED_TTL: Final = 30 * 86_400_000  # ms that a deletion is remembered
_CACHED: Final = 10_000  # queues whose policy is kept at hand
_CACHED_NAME: Final = 1_024  # bytes; longer names are looked up each time
_DIGEST: Final = 2**64 - 1

# Types of the fields of a policy. Types that are not known are passed over.
_NAME: Final = 1
_CLOCK: Final = 2
_NODE: Final = 3
_DELETED: Final = 4
_ATTEMPTS: Final = 5
_DEAD: Final = 6
_BACKOFF_MIN: Final = 7
_BACKOFF_MAX: Final = 8
_DEAD_TTL: Final = 9
_TTL: Final = 10
_RETRY: Final = 11
_REPLICATE: Final = 12
_WHEN: Final = 13  # it was deleted, ms since the epoch


class Policy:
    """What holds for the jobs of a queue.

    Attributes:
        name: of the queue, or the pattern, that it was set for.
        attempts: deliveries until a job is dead, 0: any number.
        dead: the queue of dead letters, empty: none.
        backoff_min, backoff_max: ms of the pauses before a job is queued again, 0: none.
        dead_ttl: s that a dead letter lives, 0: not set.
        ttl: s, 0: not set. retry: s, -1: not set. replicate: copies, 0: not set.
    """

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.attempts = 0
        self.dead = b""
        self.backoff_min = 0
        self.backoff_max = 0
        self.dead_ttl = 0
        self.ttl = 0
        self.retry = -1
        self.replicate = 0

    def copy(self) -> "Policy":
        """A policy with the same name and options."""
        other = Policy(self.name)
        other.attempts = self.attempts
        other.dead = self.dead
        other.backoff_min = self.backoff_min
        other.backoff_max = self.backoff_max
        other.dead_ttl = self.dead_ttl
        other.ttl = self.ttl
        other.retry = self.retry
        other.replicate = self.replicate
        return other

    def is_pattern(self) -> bool:
        """Whether it was set for a pattern, not for one queue."""
        return is_glob(self.name)

    def needs_extensions(self) -> bool:
        """Whether jobs that it applies to may need trailers."""
        return bool(self.attempts or self.dead or self.backoff_max or self.dead_ttl)

    def problem(self) -> str:
        """Why these options cannot be together; empty: they can."""
        if self.dead == self.name:
            return "DEAD must be another queue"
        if self.backoff_min > self.backoff_max:
            return "BACKOFF: min must not be greater than max"
        if self.backoff_max and not self.backoff_min:
            return "BACKOFF: min must be greater than 0"
        if self.retry == 0 and self.replicate != 1:
            return "RETRY 0 (at-most-once delivery) needs REPLICATE 1"
        if self.retry == 0 and self.attempts:
            return "RETRY 0 (at-most-once delivery) does not go with ATTEMPTS"
        return ""


NO_POLICY: Final = Policy(b"")  # of a queue that has none


class Entry:
    """What is known of a name: its policy, or that it was deleted.

    Attributes:
        policy: None: it was deleted.
        clock, node: the version: logical time of the change, and id of the node that made it.
        deleted: when that was, ms since the epoch; 0: it was not.
        packed: name, version and options, which is what nodes compare.
    """

    def __init__(
        self, name: bytes, policy: Policy | None, clock: int, node: bytes, deleted: int
    ) -> None:
        self.name = name
        self.policy = policy
        self.clock = clock
        self.node = node
        self.deleted = deleted
        self.packed = _pack(self)
        self.digest = int.from_bytes(blake2b(self.packed, digest_size=8).digest(), "big")

    def after(self, other: "Entry") -> bool:
        """Whether this is the newer one. Two that differ are never the same age."""
        if self.clock != other.clock:
            return self.clock > other.clock
        if self.node != other.node:
            return self.node > other.node
        return self.packed > other.packed  # a node whose file was put back counts a second time

    def fields(self) -> bytes:
        """The entry on the bus."""
        if self.policy is None:
            return self.packed + pack_fields([(_WHEN, pack_number(self.deleted))])
        return self.packed


class Policies:
    """The policies that a node knows.

    Attributes:
        count: of names that have a policy. Where it is 0, nothing else need be asked.
        patterns: of these, those that are patterns.
        size: bytes of the names and of what they have.
        entries: by name, deleted ones among them.
        clock: the highest logical time that was heard of.
        digest: of all entries: equal where two nodes know the same.
    """

    def __init__(self) -> None:
        self.count = 0
        self.patterns = 0
        self.size = 0
        self.entries: dict[bytes, Entry] = {}
        self.clock = 0
        self.digest = 0
        self._deleted = 0
        self._cache: dict[bytes, Policy] = {}
        self._globs: list[tuple[re.Pattern[bytes], Policy]] | None = None

    def of(self, queue: bytes) -> Policy:
        """The policy that applies to ``queue``; NO_POLICY where none does."""
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

    def named(self, name: bytes) -> Policy | None:
        """The policy that was set for just this name or pattern."""
        entry = self.entries.get(name)
        return None if entry is None else entry.policy

    def all(self) -> list[Policy]:
        """All policies, by name."""
        entries = [self.entries[name] for name in sorted(self.entries)]
        return [entry.policy for entry in entries if entry.policy is not None]

    def _find(self, queue: bytes) -> Policy:
        policy = self.named(queue) if not is_glob(queue) else None
        if policy is None:
            policy = self._matching(queue)
        if policy.dead == queue and policy is not NO_POLICY:
            # A pattern may match its own dead letters: these stay where they are.
            policy = policy.copy()
            policy.dead = b""
            policy.attempts = 0
        return policy

    def _matching(self, queue: bytes) -> Policy:
        """The policy of the most specific pattern that ``queue`` matches."""
        if len(queue) > MAX_NAME:  # a name of a megabyte would take seconds
            return self.named(b"*") or NO_POLICY
        if self._globs is None:
            found = [policy for policy in self.all() if policy.is_pattern()]
            found.sort(key=_generality)
            self._globs = [
                (re.compile(glob_expression(policy.name), re.DOTALL), policy) for policy in found
            ]
        for expression, policy in self._globs:
            if expression.fullmatch(queue) is not None:
                return policy
        return NO_POLICY

    # ---- changes --------------------------------------------------------------------------------

    def make(self, name: bytes, policy: Policy | None, node: bytes, now: int) -> Entry:
        """A change that this ``node`` makes now (ms since the epoch); ``put`` carries it out.
        ``policy`` is None to delete it."""
        return Entry(name, policy, self.clock + 1, node, now if policy is None else 0)

    def put(self, entry: Entry) -> bool:
        """Take ``entry`` over unless a newer one of its name is known. Returns whether it was."""
        self.clock = max(self.clock, entry.clock)
        old = self.entries.get(entry.name)
        if old is not None:
            if not entry.after(old):
                return False
            self._count(old, -1)
        self.entries[entry.name] = entry
        self._count(entry, 1)
        self._changed()
        if self._deleted > MAX_DELETED:
            self._remove(min((e for e in self.entries.values() if e.policy is None), key=_age))
        return True

    def undo(self, entry: Entry, old: Entry | None) -> None:
        """Take back that ``entry`` was put in the place of ``old``, unless a newer one came."""
        if self.entries.get(entry.name) is not entry:
            return
        self._remove(entry)
        if old is not None:
            self.entries[old.name] = old
            self._count(old, 1)

    def forget_deleted(self, before: int) -> bool:
        """Forget deletions from ``before`` that time (ms). Returns whether there were any."""
        old = [e for e in self.entries.values() if e.policy is None and e.deleted < before]
        for entry in old:
            self._remove(entry)
        return len(old) > 0

    def clear(self) -> None:
        """Forget everything."""
        self.count = self.patterns = self.size = self.clock = self.digest = self._deleted = 0
        self.entries.clear()
        self._changed()

    def _remove(self, entry: Entry) -> None:
        del self.entries[entry.name]
        self._count(entry, -1)
        self._changed()

    def _count(self, entry: Entry, step: int) -> None:
        self.digest = (self.digest + step * entry.digest) & _DIGEST
        self.size += step * len(entry.packed)
        if entry.policy is None:
            self._deleted += step
        else:
            self.count += step
            if is_glob(entry.name):
                self.patterns += step

    def _changed(self) -> None:
        self._cache.clear()
        self._globs = None


def _generality(policy: Policy) -> tuple[bool, int, bytes]:
    """Orders patterns: what has more literal characters comes first, ``*`` last."""
    return policy.name == b"*", -glob_literals(policy.name), policy.name


def _age(entry: Entry) -> tuple[int, bytes, bytes]:
    return entry.clock, entry.node, entry.packed


# ---- on the bus ------------------------------------------------------------------------------


def _pack(entry: Entry) -> bytes:
    """Name, version and options."""
    fields = [(_NAME, entry.name), (_CLOCK, pack_number(entry.clock)), (_NODE, entry.node)]
    policy = entry.policy
    if policy is None:
        fields.append((_DELETED, b""))
        return pack_fields(fields)
    if policy.dead:
        fields.append((_DEAD, policy.dead))
    if policy.retry >= 0:
        fields.append((_RETRY, pack_number(policy.retry)))
    for type, value in (
        (_ATTEMPTS, policy.attempts),
        (_BACKOFF_MIN, policy.backoff_min),
        (_BACKOFF_MAX, policy.backoff_max),
        (_DEAD_TTL, policy.dead_ttl),
        (_TTL, policy.ttl),
        (_REPLICATE, policy.replicate),
    ):
        if value:
            fields.append((type, pack_number(value)))
    return pack_fields(fields)


def read_entry(data: bytes) -> Entry:
    """The entry that another node sent (``Entry.fields``). Raises FieldsError."""
    values: dict[int, bytes] = dict(unpack_fields(data))
    name = values.get(_NAME, b"")
    node = values.get(_NODE, b"")
    clock = unpack_number(values.get(_CLOCK, b""))
    if not name or len(name) > MAX_NAME or len(node) != NODE_ID_LENGTH or clock > MAX_CLOCK:
        raise FieldsError("a policy without a name, a node or a time")
    if _DELETED in values:
        return Entry(name, None, clock, node, unpack_number(values.get(_WHEN, b"")))
    policy = Policy(name)
    policy.dead = values.get(_DEAD, b"")
    policy.attempts = _number(values, _ATTEMPTS, 0)
    policy.backoff_min = _number(values, _BACKOFF_MIN, 0)
    policy.backoff_max = _number(values, _BACKOFF_MAX, 0)
    policy.dead_ttl = _number(values, _DEAD_TTL, 0)
    policy.ttl = _number(values, _TTL, 0)
    policy.retry = _number(values, _RETRY, -1)
    policy.replicate = _number(values, _REPLICATE, 0)
    problem = policy.problem()
    if problem or len(policy.dead) > MAX_NAME:
        raise FieldsError("the options of a policy: " + problem)
    return Entry(name, policy, clock, node, 0)


def _number(values: dict[int, bytes], type: int, default: int) -> int:
    value = values.get(type)
    if value is None:
        return default
    number = unpack_number(value)
    if number > MAX_MILLISECONDS:
        raise FieldsError(f"{number} is too much for a policy")
    return number
