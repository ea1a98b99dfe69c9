"""Parts of working with files that are elsewhere: patterns, reading, and errors in a line."""

import io
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa

from disque_trio.spark.filesystems import FileSystemError

MAGIC = re.compile(r"[*?[]")
_AWS = re.compile(
    r"AWS Error (\w+)(?: \(HTTP status (\d+)\))? during \w+ operation: (.*?)(?: \(Request ID.*)?$",
    re.DOTALL,
)


class Reading(io.RawIOBase):
    """A file of pyarrow's whose errors say which file it is."""

    def __init__(self, place: str, bucket: str, file: Any) -> None:
        self._place = place
        self._bucket = bucket
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._file.readinto(buffer))
        except (OSError, pa.ArrowException) as problem:
            raise in_a_line(self._place, self._bucket, problem) from problem

    def seek(self, offset: int, whence: int = 0) -> int:
        self._file.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def split_pattern(path: str) -> tuple[str, list[str]]:
    """The part of a path before the first name with a wildcard, and the names from there on."""
    names = path.split("/")
    first = next((at for at, name in enumerate(names) if MAGIC.search(name)), len(names))
    return "/".join(names[:first]), names[first:]


def matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether the names of a path match the patterns, as in a shell."""
    if not patterns:
        return not names
    first, rest = patterns[0], patterns[1:]
    if first == "**":
        return any(matches(names[at:], rest) for at in range(len(names) + 1))
    if not names or (names[0].startswith(".") and not first.startswith(".")):
        return False
    return fnmatchcase(names[0], first) and matches(names[1:], rest)


def in_a_line(place: str, bucket: str, problem: Exception) -> OSError:
    """What a person wants to know, as an error of the same kind."""
    text = " ".join(str(problem).split())
    if isinstance(problem, FileNotFoundError):
        return FileNotFoundError(f"nothing at {place}")
    found = _AWS.search(text)
    if found is None:
        kind = PermissionError if isinstance(problem, PermissionError) else FileSystemError
        return kind(f"{place}: {text}")
    code, status, said = found[1], found[2], found[3].strip()
    if code in ("NO_SUCH_KEY", "RESOURCE_NOT_FOUND"):
        return FileNotFoundError(f"nothing at {place}")
    if code == "NO_SUCH_BUCKET":
        return FileNotFoundError(f"{place}: no bucket {bucket}")
    if code in ("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH") or (
        status == "403"
    ):
        return PermissionError(f"{place}: S3 refuses it ({code}): {said}")
    return FileSystemError(f"{place}: {code}: {said}")
