"""Schedules as words: the arguments of CRON SET, the replies of CRON GET, and the lines of the
file.

In addition to the lines of all such files (see ``version_words``), that of schedules has a line
after each schedule that has ticked, and one with the last jobs of it that this node added::

    schedule 12 1f...c0 "nightly" "0 3 * * *" "Europe/Berlin" 1 "reports" "all" RETRY 60
    reached "nightly" 1700000000000
    ran "nightly" 1699996400000 D-... 1700000000000 D-...
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from disque_trio.job_options import TEXTS
from disque_trio.node.core.shared.schedules import CATCHES_UP, FLAGS, PAUSED, Schedule, Schedules
from disque_trio.node.core.shared.version_words import (
    lines_of,
    number_from,
    take_lines,
    take_words,
    text_of,
    whole_file,
)
from disque_trio.node.core.shared.versions import MAX_TIME, SharedError
from disque_trio.protocol.serialjob import is_job_id
from disque_trio.resp.inline import quote, quote_all
from disque_trio.resp.reply import Value

NO_ID: Final = b"-"  # of a topic to which no queue is bound

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
        if len(rest) >= 2 and word in TEXTS:
            rest += words[at : at + 2]  # a text may be any, too
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


def describe(
    schedule: Schedule, last: int, next: int, problem: str, runs: list[tuple[int, bytes]]
) -> dict[bytes, Value]:
    """The reply of CRON GET. ``last``: up to when it is done; ``next``: its next tick; both in ms
    since the epoch, 0: none. ``problem``: why its last job was not added; empty: it was. ``runs``:
    see ``Schedules``."""
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
    if schedule.user:
        found[b"user"] = schedule.user
    if runs:
        told: list[Value] = []
        for tick, id in reversed(runs):
            told += [tick, id]
        found[b"runs"] = told
    return found


def format_file(schedules: Schedules) -> Iterator[bytes]:
    """The contents of the file, in pieces (see ``whole_file``)."""
    return whole_file(schedules, _ABOUT, [], partial(format_changes, schedules))


def format_changes(schedules: Schedules, names: list[bytes]) -> bytes:
    """What to append to the file after changes of ``names``."""
    lines = lines_of(schedules, b"schedule", _words, names)
    return text_of(lines + _reached(schedules, names))


def _reached(schedules: Schedules, names: list[bytes]) -> list[bytes]:
    found = [schedules.entries[name] for name in names if name in schedules.entries]
    lines = [b"reached %b %d" % (quote(one.name), one.reached) for one in found if one.reached]
    for one in found:
        runs = schedules.runs.get(one.name)
        if runs:
            words = b" ".join([b"%d %b" % (tick, id or NO_ID) for tick, id in runs])
            lines.append(b"ran %b %b" % (quote(one.name), words))
    return lines


def _words(schedule: Schedule) -> list[bytes]:
    words = [schedule.spec, schedule.zone, b"%d" % schedule.flags, schedule.queue, schedule.body]
    return [quote_all([*words, *schedule.options])]


def parse_file(text: bytes, schedules: Schedules) -> list[str]:
    """Read the file ``text`` into ``schedules``, which must be empty. Return the lines that had to
    be skipped (see ``take_lines``)."""

    def take(words: list[bytes], later: bool) -> None:
        if words[0] == b"reached" and len(words) == 3:
            entry = schedules.entries.get(words[1])
            if entry is None:
                raise SharedError("there is no schedule with this name before it")
            schedules.reach(entry, number_from(words[2], MAX_TIME))
        elif words[0] == b"ran" and len(words) % 2 == 0:
            if words[1] not in schedules.entries:
                raise SharedError("there is no schedule with this name before it")
            schedules.runs.pop(words[1], None)
            for tick, id in zip(words[2::2], words[3::2], strict=True):
                if id != NO_ID and not is_job_id(id):
                    raise SharedError("this is not the id of a job")
                schedules.ran(words[1], number_from(tick, MAX_TIME), b"" if id == NO_ID else id)
        elif not take_words(words, later, schedules, b"schedule", _read):
            raise SharedError(
                "expected clock, schedule, reached, ran or deleted, followed by its values"
            )

    return take_lines(text, take)


def _read(name: bytes, words: list[bytes]) -> Schedule:
    if len(words) < 5:
        raise SharedError("a schedule needs times, a time zone, flags, a queue and a job")
    flags = number_from(words[2], FLAGS)
    return Schedule(name, words[0], words[1], flags, words[3], words[4], words[5:])
