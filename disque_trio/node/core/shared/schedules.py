"""Schedules: jobs that are added again and again, and what a node knows of them.

All nodes of a cluster share the same schedules, and know up to which tick each is done (see
``versions``).
"""

from typing import Final

from disque_trio.node.core.shared.cron_times import MAX_SPEC, MAX_ZONE
from disque_trio.node.core.shared.versions import USER, Shared, SharedError, Versions, name_in
from disque_trio.protocol.fields import (
    Field,
    pack_number,
    pack_texts,
    unpack_number,
    unpack_texts,
)

MAX_SCHEDULES: Final = 10_000
MAX_SIZE: Final = 4 * 1024 * 1024  # bytes of all
MAX_CONTENTS: Final = 64 * 1024  # bytes of queue, body and options

# Types of the fields of a schedule.
_SPEC: Final = 20
_ZONE: Final = 21
_FLAGS: Final = 22
_QUEUE: Final = 23
_BODY: Final = 24
_OPTIONS: Final = 25
_TYPES: Final = frozenset((_SPEC, _ZONE, _FLAGS, _QUEUE, _BODY, _OPTIONS, USER))
CATCHES_UP: Final = 1
PAUSED: Final = 2
FLAGS: Final = CATCHES_UP | PAUSED
MOST_RUNS: Final = 5  # that a node remembers of a schedule


class Schedule(Shared):
    """A job to add at certain times.

    Attributes:
        name: of the schedule.
        spec, zone: see ``Times``.
        flags: CATCHES_UP: if ticks were missed, make up for the last one. PAUSED: do not tick.
        queue, body: of the jobs.
        options: of ADDJOB.
    """

    def __init__(
        self,
        name: bytes,
        spec: bytes,
        zone: bytes,
        flags: int,
        queue: bytes,
        body: bytes,
        options: list[bytes],
    ) -> None:
        super().__init__()
        self.name = name
        self.spec = spec
        self.zone = zone
        self.flags = flags
        self.queue = queue
        self.body = body
        self.options = options

    def paused(self, paused: bool) -> "Schedule":
        """The same schedule, paused or not."""
        flags = self.flags | PAUSED if paused else self.flags & ~PAUSED
        new = Schedule(self.name, self.spec, self.zone, flags, self.queue, self.body, self.options)
        new.user = self.user
        return new

    def size(self) -> int:
        """The bytes of queue, body and options."""
        return len(self.queue) + len(self.body) + sum([len(option) for option in self.options])

    def problem(self) -> str:
        if self.size() > MAX_CONTENTS:
            return f"queue, job and options of a schedule may have {MAX_CONTENTS} bytes together"
        if len(self.spec) > MAX_SPEC or len(self.zone) > MAX_ZONE:
            return f"times may have {MAX_SPEC} bytes, and a time zone {MAX_ZONE}"
        return ""

    def fields(self) -> list[Field]:
        return [
            (_SPEC, self.spec),
            (_ZONE, self.zone),
            (_FLAGS, pack_number(self.flags)),
            (_QUEUE, self.queue),
            (_BODY, self.body),
            (_OPTIONS, pack_texts(self.options)),
            *self.user_fields(),
        ]


class Schedules(Versions[Schedule]):
    """The schedules that a node knows. It adds no jobs of those that only newer releases know: a
    node of such a release does.

    Attributes:
        runs: the last jobs that this node added, by schedule: when (ms), and the id, the latest
            last.
    """

    def __init__(self) -> None:
        super().__init__(_TYPES, acts=False, reaches=True)
        self.runs: dict[bytes, list[tuple[int, bytes]]] = {}

    def ran(self, name: bytes, tick: int, id: bytes) -> None:
        """Remember that this node added the job ``id`` for a ``tick`` (ms) of the schedule
        ``name``."""
        runs = self.runs.setdefault(name, [])
        runs.append((tick, id))
        del runs[:-MOST_RUNS]

    def check(self, name: bytes, value: Schedule, grows: int) -> None:
        if self.named(name) is None and self.count >= MAX_SCHEDULES:
            raise SharedError(f"there are {MAX_SCHEDULES} schedules already, the maximum")
        if grows > 0 and self.size + grows > MAX_SIZE:
            raise SharedError(f"all schedules together would have more than {MAX_SIZE} bytes")

    def read(self, values: dict[int, bytes]) -> Schedule:
        flags = unpack_number(values.get(_FLAGS, b""))
        schedule = Schedule(
            name_in(values),
            values.get(_SPEC, b""),
            values.get(_ZONE, b""),
            flags & FLAGS,
            values.get(_QUEUE, b""),
            values.get(_BODY, b""),
            unpack_texts(values.get(_OPTIONS, b"")),
        )
        schedule.user = values.get(USER, b"")
        if flags & ~FLAGS:
            schedule.unknown.append((_FLAGS, values[_FLAGS]))
        return schedule
