"""Files and directories on any file system.

A ``Location`` is a value that can be sent to executors, which open it again. Keys and endpoint go
along with it, but are not in its text.
"""

import io
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from glob import glob
from pathlib import Path
from typing import Any, BinaryIO, cast
from uuid import uuid4

import pyarrow.fs as pafs

from disque_spark.creating import put_new
from disque_spark.filesystems import (
    GOOGLE,
    HADOOP,
    LOCAL,
    S3,
    FileSystemError,
    Opened,
    Options,
    local_path,
    opened,
    options_of,
)
from disque_spark.remote import (
    FAILURES,
    MAGIC,
    Reading,
    deleted,
    in_a_line,
    listed,
    matches,
    moved,
    split_pattern,
)
from disque_trio.disk import sync_directory, sync_file

BUFFER = 256 << 10  # the fewest bytes that a read of a remote file asks for
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://([^/?]*)(.*)", re.DOTALL)
_QUERY = re.compile(r"\?(\w+=[^&?]*(?:&\w+=[^&?]*)*)$")


@dataclass(frozen=True, order=True)
class Location:
    """A file or a directory on a file system.

    Attributes:
        scheme: scheme of the URI; ``file`` for local files.
        authority: authority of the URI: bucket or host.
        path: begins with a slash; "": the whole bucket.
        options: options of the file system.
        length: size in bytes, as a listing gave it; None: unknown.
        start: bytes at the beginning of a growing file that were read before.
    """

    scheme: str
    authority: str
    path: str
    options: Options = field(default=(), repr=False, compare=False)
    length: int | None = field(default=None, repr=False, compare=False)
    start: int = field(default=0, repr=False, compare=False)

    # ---- names -----------------------------------------------------------------------------------

    def __str__(self) -> str:
        """For people: a path if it is local, or else a URI."""
        return self.path if self.scheme == LOCAL else self.uri

    @property
    def uri(self) -> str:
        """The URI for Spark, without options."""
        scheme = "s3a" if self.scheme in S3 else self.scheme
        return f"{scheme}://{self.authority}{self.path}"

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def local(self) -> Path | None:
        """The path, if it is local; otherwise None."""
        return Path(self.path) if self.scheme == LOCAL else None

    @property
    def parent(self) -> "Location":
        """The parent directory."""
        return self._at(self.path.rpartition("/")[0])

    def __truediv__(self, name: str) -> "Location":
        """A file or directory below this directory; ``name`` may contain slashes."""
        return self._at(f"{self.path.rstrip('/')}/{name}")

    def with_name(self, name: str) -> "Location":
        """A file or directory in the same directory."""
        return self.parent / name

    def _at(self, path: str) -> "Location":
        if self.scheme == LOCAL:
            path = path or "/"
        return replace(self, path=path, length=None, start=0)

    # ---- looking ---------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether it is an existing file or directory."""
        if self.scheme == LOCAL:
            return os.path.exists(self.path)
        return bool(self._info().type != pafs.FileType.NotFound)

    def is_dir(self) -> bool:
        """Whether it is a directory; on file systems without directories: whether there are files
        below it."""
        if self.scheme == LOCAL:
            return os.path.isdir(self.path)
        return bool(self._info().type == pafs.FileType.Directory)

    def is_file(self) -> bool:
        """Whether it is a file."""
        if self.scheme == LOCAL:
            return os.path.isfile(self.path)
        return bool(self._info().type == pafs.FileType.File)

    def size(self) -> int:
        """Size of the file in bytes; ``length``, if it is set.

        Raises:
            FileNotFoundError: there is no such file.
        """
        if self.length is not None:
            return self.length
        if self.scheme == LOCAL:
            return os.stat(self.path).st_size
        info = self._info()
        if info.type != pafs.FileType.File:
            raise FileNotFoundError(f"no file at {self}")
        return int(info.size)

    def files(self, recursive: bool = True) -> list["Location"]:
        """The files in this directory, and if ``recursive`` in all directories below it, sorted.
        Follows symbolic links.

        Raises:
            FileNotFoundError: there is no such directory or bucket.
        """
        if self.scheme == LOCAL:
            return sorted(self._walk(recursive))
        found = self._list(recursive, pafs.FileType.File)
        return [replace(place, length=info.size) for place, info in found]

    def directories(self) -> list["Location"]:
        """The directories in this one, sorted.

        Raises:
            FileNotFoundError: there is no such directory or bucket.
        """
        if self.scheme == LOCAL:
            with os.scandir(self.path) as entries:
                return sorted(self / entry.name for entry in entries if entry.is_dir())
        return [place for place, _ in self._list(False, pafs.FileType.Directory)]

    def glob(self) -> list["Location"]:
        """The files and directories that match this location as a pattern: ``*``, ``?`` and
        ``[...]`` match within names, ``**`` matches any number of directories. Without wildcards,
        the location itself if it exists.

        Raises:
            OSError: the file system refuses, or has no such bucket.
        """
        if self.scheme == LOCAL:
            if not MAGIC.search(self.path):
                return [self] if self.exists() else []
            return sorted(self._at(path) for path in glob(self.path, recursive=True))
        base, patterns = split_pattern(self.path)
        if not patterns:
            return [self] if self.exists() else []
        deep = len(patterns) > 1 or "**" in patterns
        try:
            found = self._at(base)._list(deep, None)
        except FileNotFoundError:
            if not replace(self, path="").exists():
                raise  # there is not even the bucket
            return []
        return [
            replace(place, length=info.size)
            for place, info in found
            if matches(place.path[len(base) + 1 :].split("/"), patterns)
        ]

    def ages(self) -> list[tuple["Location", float]]:
        """The files in this directory, and when each was written, in seconds by the file system's
        clock."""
        if self.scheme == LOCAL:
            times = []
            for file in self.files(recursive=False):
                with suppress(FileNotFoundError):  # deleted meanwhile
                    times.append((file, Path(file.path).stat().st_mtime))
            return times
        found = self._list(False, pafs.FileType.File)
        return [(place, info.mtime_ns / 1e9 if info.mtime_ns else 0.0) for place, info in found]

    def _info(self) -> Any:
        with self._told() as there:
            return there.system.get_file_info(there.path)

    def _list(self, recursive: bool, kind: Any) -> list[tuple["Location", Any]]:
        with self._told() as there:
            without = self.scheme in GOOGLE and kind is not pafs.FileType.File
            infos = listed(there.system, there.path, recursive, without)
        here = len(there.path.rstrip("/"))
        found = [
            (self._at(self.path.rstrip("/") + info.path[here:]), info)
            for info in infos
            if kind is None or info.type == kind
        ]
        return sorted(found, key=lambda pair: pair[0])

    def _walk(self, recursive: bool) -> Iterator["Location"]:
        if not os.path.isdir(self.path):
            raise FileNotFoundError(f"no directory at {self}")
        seen = set()
        for place, directories, names in os.walk(self.path, followlinks=True):
            real = os.path.realpath(place)
            if real in seen:
                directories.clear()  # a link that leads back
                continue
            seen.add(real)
            if not recursive:
                directories.clear()
            # Names that are not directories are files, except for broken links.
            yield from (self._at(os.path.join(place, name)) for name in names)

    # ---- reading and writing ---------------------------------------------------------------------

    def open_input(self, buffer: int = BUFFER) -> BinaryIO:
        """Open the file for reading, with random access.

        Args:
            buffer: bytes to ask for at a time, for remote files; 0: the reader has its own buffer.

        Raises:
            FileNotFoundError: there is no such file.
        """
        if self.scheme == LOCAL:
            return open(self.path, "rb", -1 if buffer else 0)
        with self._told() as there:
            file = there.system.open_input_file(there.path)
        return cast(
            BinaryIO, io.BufferedReader(Reading(str(self), self.authority, file), buffer or BUFFER)
        )

    def open_output(self) -> BinaryIO:
        """Open a new file for writing; it replaces an existing one. Creates its directory.

        On object stores, the file appears as a whole when it is closed; elsewhere it is visible
        from the beginning. So use ``write_bytes`` or ``put_new`` for files that others look for.
        """
        self.parent.make_directory()
        if self.scheme == LOCAL:
            return open(self.path, "wb")
        with self._told() as there:
            return cast(BinaryIO, there.system.open_output_stream(there.path, compression=None))

    def read_bytes(self) -> bytes:
        """The contents of the file. Raises FileNotFoundError if there is none."""
        with self.open_input() as file:
            return file.read()

    def write_bytes(self, data: bytes) -> None:
        """Create or replace the file atomically: readers see either the old or the new one."""
        if self.scheme not in (LOCAL, *HADOOP):
            self._write(data)
            return
        temporary = self.with_name(f".{self.name}.{uuid4().hex}.tmp")
        try:
            temporary._write(data)
            temporary.rename(self)
        except BaseException:
            temporary.delete()
            raise

    def _write(self, data: bytes) -> None:
        file = self.open_output()
        with nullcontext() if self.scheme == LOCAL else self._told():
            file.write(data)
            file.close()

    def put_new(self, data: bytes) -> bool:
        """Create the file with ``data``, unless it exists. Returns whether this call created it. Of
        several concurrent calls, one returns True; see ``creating.put_new``."""
        return put_new(self, data)

    def sync(self) -> None:
        """Sync a local file, or the entries of a local directory, to disk. Remote files are safe
        when they are closed."""
        if self.scheme == LOCAL:
            (sync_directory if self.is_dir() else sync_file)(Path(self.path))

    # ---- moving and deleting ---------------------------------------------------------------------

    def rename(self, other: "Location") -> None:
        """Rename the file within its file system; replaces an existing file. On object stores it is
        copied, which is not atomic.

        Raises:
            FileNotFoundError: there is no such file.
        """
        if self.scheme == LOCAL:
            os.replace(self.path, other.path)
            return
        with self._told() as there:
            moved(there.system, there.path, other.filesystem().path)

    def delete(self) -> None:
        """Delete the file, if it exists."""
        if self.scheme == LOCAL:
            Path(self.path).unlink(missing_ok=True)
            return
        with suppress(FileNotFoundError), self._told() as there:
            deleted(there.system, there.path)

    def delete_tree(self) -> None:
        """Delete a directory and everything in it, if it exists."""
        if self.scheme == LOCAL:
            with suppress(FileNotFoundError):
                shutil.rmtree(self.path)
            return
        with suppress(FileNotFoundError), self._told() as there:
            there.system.delete_dir(there.path)

    def make_directory(self) -> None:
        """Create the directory and its parents, if the file system has directories."""
        if self.scheme == LOCAL:
            os.makedirs(self.path, exist_ok=True)
            return
        with self._told() as there:
            if there.needs_directories:
                there.system.create_dir(there.path, recursive=True)

    def filesystem(self) -> Opened:
        """The pyarrow file system and the path in it, for functions of pyarrow."""
        return opened(self.scheme, self.authority, self.path, self.options)

    @contextmanager
    def _told(self) -> Iterator[Opened]:
        """Turn errors in the block into one-line errors that name this location."""
        try:
            yield self.filesystem()
        except FileSystemError:
            raise
        except FAILURES as problem:
            raise in_a_line(str(self), self.authority, problem) from problem


Place = str | os.PathLike[str] | Location  # what ``location`` takes


def location(place: Place, settings: Mapping[str, str] | None = None) -> Location:
    """The location of a path or URI.

    Args:
        place: ``/path``, ``file:///path``, ``s3a://bucket/key``, ``abfss://container@account...``,
            ``gs://bucket/key``, ``hdfs://host:port/path``, or any URI that fsspec supports. A URI
            may end with options, which have pyarrow's names:
            ``s3a://bucket/x?region=eu-central-1``.
        settings: Spark settings (``settings_of``); those of file systems are used.

    Raises:
        FileSystemError: ``place`` is a file of another machine, or has an unknown option.
    """
    if isinstance(place, Location):
        return place
    text = os.fspath(place)
    found = None if text.startswith("file:") else _URI.fullmatch(text)
    if found is None:
        path = local_path(text) if text.startswith("file:") else text
        # Like pathlib: does not resolve links or "..".
        return Location(LOCAL, "", str(Path(path).absolute()))
    scheme, authority, path = found[1].lower(), found[2], found[3]
    query = _QUERY.search(path)
    if query is not None:
        path = path[: query.start()]
    options = options_of(scheme, authority, query[1] if query else "", settings)
    return Location(scheme, authority, path.rstrip("/"), options)


def settings_of(spark: Any) -> dict[str, str]:
    """The settings of a session that ``location`` may use."""
    return {
        name: value for name, value in spark.conf.getAll.items() if name.startswith("spark.hadoop.")
    }
