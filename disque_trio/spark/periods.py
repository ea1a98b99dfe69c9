"""Ranges of time, and which segments of an event log can have events of one. Pure functions.

The name of a segment says when it was begun; it ends before the next one of its node begins.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from disque_trio.spark.options import OptionError

LATE_MS = 600_000
"""How much later than it happened an event may have been written, or how far a clock may have been
set back, for its segment to be found by its name."""

_NAME = re.compile(r"(events-.*)-(\d+)-(\d+)\.jsonl(?:\..*)?")


class Named(Protocol):
    """A file; as text it is its path."""

    @property
    def name(self) -> str: ...


_File = TypeVar("_File", bound=Named)


class Period(NamedTuple):
    """From ``since`` on and before ``until``, in ms since the epoch; None: without end."""

    since: int | None = None
    until: int | None = None

    def within(self, other: "Period") -> "Period":
        """What is in both."""
        since = [ms for ms in (self.since, other.since) if ms is not None]
        until = [ms for ms in (self.until, other.until) if ms is not None]
        return Period(max(since, default=None), min(until, default=None))

    def segments(self, files: Iterable[_File]) -> list[_File]:
        """Those of ``files`` that may have events of it, in their order. Files with other names
        than nodes give may have any."""
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
        """The rows whose ``time_ms`` is within it."""
        if self.since is not None:
            events = events.filter(pc.field("time_ms") >= self.since)
        if self.until is not None:
            events = events.filter(pc.field("time_ms") < self.until)
        return events


def moment(name: str, text: str | None) -> int | None:
    """The value of an option: ms since the epoch, or a date with or without a time, in UTC unless
    it says another zone. None if the option is not there."""
    if text is None:
        return None
    text = text.strip()
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"{name}: expected a time as 2026-11-24T12:00:00, or ms since the epoch, got {text!r}"
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
