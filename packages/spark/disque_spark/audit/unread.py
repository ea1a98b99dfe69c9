"""Finds the segments that an audit has not read yet."""

import gzip
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from disque_spark.audit.gaps import Head, head_of, order_of
from disque_spark.audit.manifest import COMPRESSED, prefix_of
from disque_spark.files import Location
from disque_spark.segments import OPEN, PACKED, each, grown


class AuditError(Exception):
    """The logs cannot be audited; the text says which, and why."""


class NoLogError(AuditError):
    """There is no log yet."""


class Unread(NamedTuple):
    """A segment that no run has read; ``head`` is None if no line says which node wrote it."""

    name: str
    head: Head | None


class Segments:
    """The segments that exist now. A segment is identified by its name, regardless of its directory
    and compression. If its header has another name than the file, it was copied or renamed.

    Args:
        found: all files.
        known: sizes in bytes of the segments that were read before, by name; COMPRESSED if
            compressed.
        growing: bytes that were read of segments that were still being written, by name.
        is_past: whether a segment was dropped, by the prefix of its node's id and its ``order_of``.
            Such segments are ignored.

    Attributes:
        new: segments that were not read, or not to their end, by path.
        sizes: sizes of these, as in ``known``, if they are complete.
        growing: bytes that will have been read of incomplete ones, by name.
        copies: number of files that are copies of others under other names.

    Raises:
        AuditError: a file has changed, or two different files have the same name.
    """

    def __init__(
        self,
        found: Sequence[Location],
        known: Mapping[str, int],
        is_past: Callable[[str, tuple[int, int]], bool] = lambda prefix, order: False,
        growing: Mapping[str, int] | None = None,
    ) -> None:
        self.new: dict[Location, Unread] = {}
        self.sizes: dict[str, int] = {}
        self.growing = dict(growing or {})
        self.copies = 0
        paths: dict[str, Location] = {}

        def is_over(name: str) -> bool:
            return name not in known and is_past(prefix_of(name), order_of(name))

        asked = [path for path in found if not is_over(_file_name(path))]
        every = zip(each(lambda path: self._called(path, known), asked), asked, strict=True)
        named = [(one, path) for one, path in every if not is_over(one.name)]
        # A file that has the segment's own name comes before copies.
        for one, path in sorted(named, key=lambda one: (one[0].name != _file_name(one[1]), one[1])):
            other = paths.setdefault(one.name, path)
            if other is not path:
                if other.parent != path.parent and not _is_same(other, path):
                    raise AuditError(f"two segments have the same name: {other} and {path}")
                # The segment has just been compressed, or the file is a copy.
                self.copies += _file_name(other) != _file_name(path)
                continue
            before = known.get(one.name)
            if before is None:
                self._take(path, one)
                continue
            size = _size_of(path)
            if COMPRESSED not in (before, size) and before != size:
                raise AuditError(
                    f"{path} had {before} bytes when it was read, but has {size} now: it was"
                    " incomplete. To read everything again, audit into another directory"
                )

    def _take(self, path: Location, one: Unread) -> None:
        """Record the lines of a segment that no run has read."""
        start = self.growing.get(one.name, 0)
        lines = grown(path, start) if start or path.name.endswith(OPEN) else path
        if lines is None:
            return  # removed meanwhile
        if lines.name.endswith(OPEN):
            if lines.size() > start:
                self.growing[one.name] = lines.size()
                self.new[lines] = one
            return
        size = _size_of(lines)
        self.growing.pop(one.name, None)
        self.sizes[one.name] = size
        # After a power failure, the file may have lost lines that were read.
        if not 0 <= size < start:
            self.new[lines] = one

    def _called(self, path: Location, known: Mapping[str, int]) -> Unread:
        """The segment's name from its header, or else the name of its file."""
        name = _file_name(path)
        if name in known:
            return Unread(name, None)
        try:
            head = head_of(path)
        except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
            raise AuditError(f"{path}: damaged: {problem}") from problem
        return Unread(head.name if head is not None and head.name else name, head)


def _file_name(path: Location) -> str:
    return path.name.removesuffix(PACKED).removesuffix(OPEN)


def _size_of(path: Location) -> int:
    return COMPRESSED if path.name.endswith(PACKED) else path.size()


def _is_same(one: Location, other: Location) -> bool:
    """Whether both are the same file, through links."""
    if one.local is None or other.local is None:
        return one == other
    return one.local.samefile(other.local)
