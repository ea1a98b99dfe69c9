"""Helpers for files on remote file systems: patterns, reading, and one-line errors."""

import io
import re
import shutil
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from disque_spark.filesystems import FileSystemError

MAGIC = re.compile(r"[*?[]")
_AWS = re.compile(
    r"AWS Error (\w+)(?: \(HTTP status (\d+)\))? during \w+ operation: (.*?)(?: \(Request ID.*)?$",
    re.DOTALL,
)

_AZURE = re.compile(r"Azure Error: \[(\w*)\] (?:(\d{3}) )?(.*?)(?: Request ?I[Dd]:.*)?$")
_GOOGLE = re.compile(r"google::cloud::Status\((\w+): (.*?)(?: error_info=.*)?$")
_LAST = re.compile(r"^.*with a last message of ")
_NO_FILE = re.compile(r"No such (?:file or )?directory|object does not exist")
# What libraries raise when a file system fails; HDFS's raises RuntimeErrors as well.
FAILURES = (OSError, pa.ArrowException, RuntimeError)
_STACK = re.compile(r"(?:\n|\\n)(?:\t|\\t)at ")  # of Java, plain or escaped
_COPIED = 1 << 20  # bytes copied at a time


class Reading(io.RawIOBase):
    """A pyarrow file that names the file in its errors."""

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
        except FAILURES as problem:
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
    """Split a path before the first name with a wildcard: the path so far, and the other names."""
    names = path.split("/")
    first = next((at for at, name in enumerate(names) if MAGIC.search(name)), len(names))
    return "/".join(names[:first]), names[first:]


def matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether the names of a path match the patterns, by the rules of a shell."""
    if not patterns:
        return not names
    first, rest = patterns[0], patterns[1:]
    if first == "**":
        return any(matches(names[at:], rest) for at in range(len(names) + 1))
    if not names or (names[0].startswith(".") and not first.startswith(".")):
        return False
    return fnmatchcase(names[0], first) and matches(names[1:], rest)


def listed(system: Any, path: str, recursive: bool, without: bool) -> list[Any]:
    """The entries of a directory, and if ``recursive`` of those below it.

    Args:
        without: the file system has no directories and does not list any; they are derived from
            the names of files.
    """
    found = system.get_file_info(pafs.FileSelector(path, recursive=recursive or without))
    if not without:
        return list(found)
    base = len(path.rstrip("/")) + 1
    infos = {info.path: info for info in found}
    for info in found:
        parent = info.path.rpartition("/")[0]
        while len(parent) > base and parent not in infos:
            infos[parent] = pafs.FileInfo(parent, pafs.FileType.Directory)
            parent = parent.rpartition("/")[0]
    return [info for info in infos.values() if recursive or "/" not in info.path[base:]]


def moved(system: Any, path: str, new: str) -> None:
    """Rename a file; copy and delete it if the file system cannot rename."""
    try:
        system.move(path, new)
    except pa.ArrowNotImplementedError:  # Azure without a hierarchical namespace
        with (
            system.open_input_stream(path, compression=None) as read,
            system.open_output_stream(new, compression=None) as write,
        ):
            shutil.copyfileobj(read, write, _COPIED)
        system.delete_file(path)


def deleted(system: Any, path: str) -> None:
    """Delete a file, if it exists. Raises OSError if the file system refuses."""
    try:
        system.delete_file(path)
    except FAILURES:
        # libhdfs does not say why it failed.
        if system.get_file_info(path).type != pafs.FileType.NotFound:
            raise


def in_a_line(place: str, bucket: str, problem: Exception) -> OSError:
    """An error of the same kind, with one line of text for people."""
    text = " ".join(_STACK.split(str(problem), maxsplit=1)[0].split())
    for pattern, kind in ((_AWS, _of_aws), (_AZURE, _of_azure), (_GOOGLE, _of_google)):
        found = pattern.search(text)
        if found is not None:
            return kind(place, bucket, found)
    if isinstance(problem, FileNotFoundError) or _NO_FILE.search(text):
        return FileNotFoundError(f"nothing at {place}")
    kind_of = PermissionError if isinstance(problem, PermissionError) else FileSystemError
    return kind_of(f"{place}: {text}")


def _of_aws(place: str, bucket: str, found: re.Match[str]) -> OSError:
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


def _of_azure(place: str, bucket: str, found: re.Match[str]) -> OSError:
    code, status, said = found[1], found[2], found[3].strip()
    if code == "ContainerNotFound":
        return FileNotFoundError(f"{place}: no container {bucket.partition('@')[0]}")
    if status == "404":
        return FileNotFoundError(f"nothing at {place}")
    if status in ("401", "403"):
        return PermissionError(f"{place}: Azure refuses it ({code}): {said}")
    return FileSystemError(f"{place}: {' '.join(filter(None, (code, status)))}: {said}")


def _of_google(place: str, bucket: str, found: re.Match[str]) -> OSError:
    code, said = found[1], _LAST.sub("", found[2])
    if code == "NOT_FOUND":
        if re.search(r"function=(?:ListObjects|CreateResumableUpload)", found.string):
            return FileNotFoundError(f"{place}: no bucket {bucket}")
        return FileNotFoundError(f"nothing at {place}")
    if code in ("PERMISSION_DENIED", "UNAUTHENTICATED"):
        return PermissionError(f"{place}: Google refuses it ({code}): {said}")
    return FileSystemError(f"{place}: {code}: {said}")
