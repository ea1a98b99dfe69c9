"""Diagnoses a queue in plain words.

Owns the judgement. It reads all keys of a queue, reports who holds the roles and whether the tokens
are consistent, and changes nothing. ``PressureQueue.repair`` frees a role when asked to.

It says so when something cannot be known: nobody can tell whether a client without a lease is
alive, and while such a client works, its tokens may look wrong for a moment.
"""

from dataclasses import dataclass

from disque_pressure.errors import QueueDoesNotExistError
from disque_pressure.keys import CONSUMER, PRODUCER, PROTOCOL
from disque_pressure.queue import PressureQueue
from disque_pressure.stats import Stats
from disque_trio import humanize

Inspection = dict[str, tuple[str, str, float | None]]
"""For each key: its type, its value or length, and the seconds until it expires."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem. ``repair``: the role to free if its holder is dead, or None."""

    text: str
    repair: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The state of a queue at one moment.

    Attributes:
        lines: a description of the queue.
        findings: what is wrong with it, or may be.
    """

    lines: list[str]
    findings: list[Finding]


async def examine(queue: PressureQueue) -> Diagnosis:
    """Examine a queue.

    Raises:
        QueueDoesNotExistError: none of its keys exists.
        WrongTypeError, PressureConnectionError: as for all operations.
    """
    try:
        stats = await queue.stats()
    except QueueDoesNotExistError:
        return _remains(queue, await queue.inspect())
    keys = await queue.inspect()
    return judge(stats, keys, queue.keys.data.decode(errors="surrogateescape"))


def judge(stats: Stats, keys: Inspection, base: str) -> Diagnosis:
    """Diagnose a queue from its statistics and keys. ``base``: the key of its elements."""
    bound = "no bound" if stats.bound is None else f"bound {stats.bound}"
    state = "closed" if stats.closed else "open"
    lines = [f"{state}, {stats.length} elements, {bound}"]
    findings: list[Finding] = []
    for role in (PRODUCER, CONSUMER):
        free = stats.producer_free if role == PRODUCER else stats.consumer_free
        user = stats.producer if role == PRODUCER else stats.consumer
        lease = stats.producer_lease if role == PRODUCER else stats.consumer_lease
        lines.append(_role(role, free, user, lease))
        if not free and lease is None:
            _, ours, _ = keys.get(f"{base}:held:{role}", ("", "", None))
            findings.append(_unleased(role, user, bool(user) and ours.startswith(f"{user}#")))
        tokens = _length(keys, f"{base}:{role}_free")
        if tokens > 1:
            findings.append(
                Finding(f"{tokens} tokens for one {role}: two clients could have the role at once")
            )
    lines.append(f"not_full: {'there is a permit' if stats.not_full else 'no permit'}")
    full = stats.bound is not None and stats.length >= stats.bound
    if not full and not stats.not_full and stats.producer_free:
        findings.append(
            Finding(
                "there is room, but no permit: clients that wait for one go on waiting until the"
                " next get or put of a client like this one makes one"
            )
        )
    if full and stats.not_full and stats.producer_free:
        findings.append(Finding("it is full, but has a permit: the next put may overfill it"))
    if stats.bound is not None and stats.length > stats.bound:
        findings.append(Finding(f"it is overfilled by {stats.length - stats.bound}"))
    if stats.closed and _length(keys, f"{base}:closed") == 1:
        findings.append(
            Finding("only one closed mark is left: if a client takes it, the queue is open again")
        )
    return Diagnosis(lines, findings)


def _role(role: str, free: bool, user: str | None, lease: float | None) -> str:
    if free:
        return f"{role}: free" + (f", last {user}" if user else "")
    line = f"{role}: held by {user or 'a client that did not give its id'}"
    if lease is None:
        return line
    return f"{line}; its lease expires in {humanize.duration(lease)} unless renewed"


def _unleased(role: str, user: str | None, ours: bool) -> Finding:
    if ours:
        return Finding(
            f"the {role} {user} is dead: its lease expired. The next client like this one that"
            " wants the role takes it over; clients of other kinds wait until then",
            role,
        )
    who = user or "an unnamed client"
    return Finding(
        f"the {role} {who} keeps no lease, so nobody can know whether it is alive. If it is dead,"
        f" free the role with --free {role}",
        role,
    )


def _length(keys: Inspection, key: str) -> int:
    kind, value, _ = keys.get(key, ("list", "0", None))
    return int(value) if kind == "list" else 0


def _remains(queue: PressureQueue, keys: Inspection) -> Diagnosis:
    base = queue.keys.data.decode(errors="surrogateescape")
    left = [key for key in (f"{base}{suffix}" for suffix, _ in PROTOCOL) if key in keys]
    if not left:
        raise QueueDoesNotExistError(queue.name)
    lines = [f"no such queue, but {len(left)} of its keys exist:", *(f"  {k}" for k in left)]
    lines += [
        f"{role}: held by {keys[f'{base}:{role}'][1]}"
        for role in (PRODUCER, CONSUMER)
        if f"{base}:{role}" in left and f"{base}:{role}_free" not in left
    ]
    findings = [
        Finding(
            "a client is deleting it and waits for the roles, or died while deleting it. If it"
            " died, create the queue with --force and then delete it to remove the keys"
        )
    ]
    return Diagnosis(lines, findings)
