"""Schedules as words: the arguments of CRON SET, the replies of CRON GET, and the lines of the
file.

In addition to the lines of all such files (see ``version_words``), that of schedules has a line for
each schedule that has ticked::

    schedule 12 1f...c0 "nightly" "0 3 * * *" "Europe/Berlin" 1 "reports" "all" RETRY 60
    reached "nightly" 1700000000000
"""

from typing import Final

from disque_trio.node.core.schedules import CATCHES_UP, PAUSED, Schedule, Schedules
from disque_trio.node.core.version_words import lines_of, number_from, take_lines, take_words
from disque_trio.node.core.versions import MAX_CLOCK, SharedError
from disque_trio.resp.inline import quote
from disque_trio.resp.reply import Value

_ABOUT: Final = b"""\
# Written by the node: schedules. Stop the node before you change it, and raise the first number
# (the logical time) of a schedule that you change.
"""


def read_schedule(name: bytes, words: list[bytes]) -> Schedule:
    """The schedule ``name`` from the arguments of CRON SET: times, ``TZ`` zone and ``CATCHUP``, if
    given, queue, job, and options of ADDJOB. TZ and CATCHUP may also be among these options, but
    not after HEADERS.

    Raises:
        SharedError: something is missing or repeated.
    """
    zone = b""
    flags = 0
    rest: list[bytes] = []
    at = 1
    while at < len(words):
        word = words[at].lower()
        if len(rest) >= 2 and word == b"headers":
            rest += words[at:]  # headers may have any names
            break
        if len(rest) >= 2 and word == b"group":
            rest += words[at : at + 2]  # a group may have any name, too
            at += 2
            continue
        # In between come queue and job, which may have any names.
        free = len(rest) == 0 or len(rest) >= 2
        at += 1
        if free and word == b"tz" and not zone and at < len(words):
            zone = words[at]
            at += 1
        elif free and word == b"catchup" and not flags:
            flags = CATCHES_UP
        else:
            rest.append(words[at - 1])
    if len(rest) < 2:
        raise SharedError("a schedule needs times, a queue and a job")
    return Schedule(name, words[0], zone, flags, rest[0], rest[1], rest[2:])


def describe(schedule: Schedule, last: int, next: int, problem: str) -> dict[bytes, Value]:
    """The reply of CRON GET. ``last``: up to when it is done; ``next``: its next tick; both in ms
    since the epoch, 0: none. ``problem``: why its last job was not added; empty: it was."""
    found: dict[bytes, Value] = {
        b"name": schedule.name,
        b"times": schedule.spec,
        b"tz": schedule.zone or b"UTC",
        b"catchup": int(schedule.flags & CATCHES_UP != 0),
        b"paused": int(schedule.flags & PAUSED != 0),
        b"queue": schedule.queue,
        b"job": schedule.body,
        b"options": list(schedule.options),
        b"done-until": last,
        b"next": None if not next or schedule.flags & PAUSED else next,
    }
    if problem:
        found[b"problem"] = problem.encode()
    return found


def format_file(schedules: Schedules) -> bytes:
    """The contents of the file; empty if there is nothing to remember."""
    lines = lines_of(schedules, b"schedule", _words)
    for name in sorted(schedules.entries):
        entry = schedules.entries[name]
        if entry.reached:
            lines.append(b"reached %b %d" % (quote(name), entry.reached))
    return _ABOUT + b"\n".join(lines) + b"\n" if lines else b""


def _words(schedule: Schedule) -> list[bytes]:
    words = [schedule.spec, schedule.zone, b"%d" % schedule.flags, schedule.queue, schedule.body]
    return [quote(word) for word in [*words, *schedule.options]]


def parse_file(text: bytes, schedules: Schedules) -> None:
    """Read the file ``text`` into ``schedules``, which must be empty.

    Raises:
        SharedError: a line is wrong; the text says which one and why.
    """

    def take(words: list[bytes]) -> None:
        if words[0] == b"reached" and len(words) == 3:
            entry = schedules.entries.get(words[1])
            if entry is None:
                raise SharedError("there is no schedule with this name before it")
            schedules.reach(entry, number_from(words[2], MAX_CLOCK))
        elif not take_words(words, schedules, b"schedule", _read):
            raise SharedError(
                "expected clock, schedule, reached or deleted, followed by its values"
            )

    take_lines(text, take)


def _read(name: bytes, words: list[bytes]) -> Schedule:
    if len(words) < 5:
        raise SharedError("a schedule needs times, a time zone, flags, a queue and a job")
    flags = number_from(words[2], CATCHES_UP | PAUSED)
    return Schedule(name, words[0], words[1], flags, words[3], words[4], words[5:])
