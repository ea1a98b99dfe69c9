"""Periods of time, and the segments of an event log that can have events of a period. Pure.

The name of a segment says when it begins; it ends before the next segment of its node begins.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.options import OptionError

LATE_MS = 600_000
"""How late an event may be written, or how far a clock may be set back, so that the event's segment
is still found by its name."""

_NAME = re.compile(r"(events-.*)-(\d+)-(\d+)\.jsonl(?:\..*)?")


class Named(Protocol):
    """A file; ``str`` of it is its path."""

    @property
    def name(self) -> str: ...


_File = TypeVar("_File", bound=Named)


class Period(NamedTuple):
    """The time from ``since`` until before ``until``, in ms since the epoch; None: no limit."""

    since: int | None = None
    until: int | None = None

    def within(self, other: "Period") -> "Period":
        """The time that is in both periods."""
        since = [ms for ms in (self.since, other.since) if ms is not None]
        until = [ms for ms in (self.until, other.until) if ms is not None]
        return Period(max(since, default=None), min(until, default=None))

    def segments(self, files: Iterable[_File]) -> list[_File]:
        """The ``files`` that may have events of this period, in the same order. Files whose names
        are not those of segments may have any events."""
        files = list(files)
        if self == (None, None):
            return files
        of_nodes: dict[str, list[tuple[int, int, _File]]] = {}
        for file in files:
            named = _NAME.fullmatch(file.name)
            if named is not None:
                node = str(file).removesuffix(file.name) + named[1]
                of_nodes.setdefault(node, []).append((int(named[2]), int(named[3]), file))
        out = set()
        for segments in of_nodes.values():
            segments.sort(key=lambda segment: segment[:2])
            ends = [start for start, _, _ in segments[1:]]
            for (start, _, file), end in zip(segments, [*ends, None], strict=True):
                if not self._meets(start, end):
                    out.add(str(file))
        return [file for file in files if str(file) not in out]

    def _meets(self, start: int, end: int | None) -> bool:
        begins_later = self.until is not None and start - LATE_MS >= self.until
        ends_before = self.since is not None and end is not None and end + LATE_MS < self.since
        return not begins_later and not ends_before

    def rows(self, events: pa.Table) -> pa.Table:
        """The rows whose ``time_ms`` is in the period."""
        if self.since is not None:
            events = events.filter(pc.field("time_ms") >= self.since)
        if self.until is not None:
            events = events.filter(pc.field("time_ms") < self.until)
        return events


def moment(name: str, text: str | None) -> int | None:
    """The value of an option in ms since the epoch; None if it is not set.

    Args:
        name: name of the option, for errors.
        text: ms since the epoch, or an ISO date with or without a time, in UTC unless it names
            another zone.

    Raises:
        OptionError: it is neither.
    """
    if text is None:
        return None
    text = text.strip()
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"{name}: expected a time like 2026-11-24T12:00:00, or ms since the epoch, got {text!r}"
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
