"""Files and directories on any file system.

A ``Location`` is a value that can be sent to executors, which open it again. Keys and endpoint go
along with it, but are not in its text.
"""

import errno
import io
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from stat import S_ISDIR
from typing import Any, BinaryIO, cast
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs

from disque_spark.filesystems import (
    FAILURES,
    GOOGLE,
    HADOOP,
    LOCAL,
    S3,
    FileSystemError,
    Opened,
    Options,
    in_a_line,
    opened,
    options_of,
    put_conditionally,
)
from disque_trio.disk import sync_directory, sync_file

BUFFER = 256 << 10  # the fewest bytes that a read of a remote file asks for
_COPIED = 1 << 20  # bytes copied at a time
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
_MAGIC = re.compile(r"[*?[]")
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
        return bool(self._info().type != pafs.FileType.NotFound)

    def is_dir(self) -> bool:
        """Whether it is a directory; on file systems without directories: whether there are files
        below it."""
        return bool(self._info().type == pafs.FileType.Directory)

    def is_file(self) -> bool:
        """Whether it is a file."""
        return bool(self._info().type == pafs.FileType.File)

    def size(self) -> int:
        """Size of the file in bytes; ``length``, if it is set.

        Raises:
            FileNotFoundError: there is no such file.
        """
        if self.length is not None:
            return self.length
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
        return [found for found, info in self._list(recursive) if info.is_file]

    def ages(self) -> list[tuple["Location", float]]:
        """The files in this directory, and when each was written, in seconds by the file system's
        clock."""
        found = [(place, info.mtime_ns or 0) for place, info in self._list(False) if info.is_file]
        return [(place, written / 1e9) for place, written in found]

    def glob(self) -> list["Location"]:
        """The files and directories that match this location as a pattern: ``*``, ``?`` and
        ``[...]`` match within names, ``**`` matches any number of directories. Without wildcards,
        the location itself if it exists.

        Raises:
            OSError: the file system refuses, or has no such bucket.
        """
        if self.scheme == LOCAL:
            return sorted(self._at(path) for path in glob(self.path, recursive=True))
        names = self.path.split("/")
        first = next((at for at, name in enumerate(names) if _MAGIC.search(name)), len(names))
        base, patterns = self._at("/".join(names[:first])), names[first:]
        if not patterns:
            return [self] if self.exists() else []
        # Google's store lists no directories: they are known by the files in them.
        deep = len(patterns) > 1 or "**" in patterns or self.scheme in GOOGLE
        try:
            found = {place.path: place for place, _ in base._list(deep)}
        except FileNotFoundError:
            if not replace(self, path="").exists():
                raise  # there is not even the bucket
            return []
        here = len(base.path.rstrip("/")) + 1
        for place in list(found.values()):
            while len((place := place.parent).path) >= here:
                found.setdefault(place.path, place)
        return sorted(at for at in found.values() if matches(at.path[here:].split("/"), patterns))

    def _info(self) -> Any:
        if self.scheme == LOCAL:
            try:
                found = os.stat(self.path)
            except (FileNotFoundError, NotADirectoryError):
                return pafs.FileInfo(self.path, pafs.FileType.NotFound)
            kind = pafs.FileType.Directory if S_ISDIR(found.st_mode) else pafs.FileType.File
            return pafs.FileInfo(self.path, kind, size=found.st_size)
        with self._told() as (system, path):
            return system.get_file_info(path)

    def _list(self, recursive: bool) -> list[tuple["Location", Any]]:
        with self._told() as (system, path):
            infos = system.get_file_info(pafs.FileSelector(path, recursive=recursive))
        here = len(path.rstrip("/"))
        pairs = [(self._at(self.path.rstrip("/") + info.path[here:]), info) for info in infos]
        return sorted(
            ((replace(at, length=info.size if info.is_file else None), info) for at, info in pairs),
            key=lambda pair: pair[0],
        )

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
        with self._told() as (system, path):
            return io.BufferedReader(system.open_input_file(path), buffer or BUFFER)

    def open_output(self) -> BinaryIO:
        """Open a new file for writing; it replaces an existing one. Creates its directory.

        On object stores, the file appears as a whole when it is closed; elsewhere it is visible
        from the beginning. So use ``write_bytes`` or ``put_new`` for files that others look for.
        """
        self.parent.make_directory()
        if self.scheme == LOCAL:
            return open(self.path, "wb")
        with self._told() as (system, path):
            return cast(BinaryIO, system.open_output_stream(path, compression=None))

    def read_bytes(self) -> bytes:
        """The contents of the file. Raises FileNotFoundError if there is none."""
        with self._told(), self.open_input() as file:
            return file.read()

    def write_bytes(self, data: bytes) -> None:
        """Create or replace the file atomically: readers see either the old or the new one."""
        if self.scheme not in (LOCAL, *HADOOP):
            self._write(data)
            return
        with self._beside(data) as temporary:
            temporary.rename(self)

    def put_new(self, data: bytes) -> bool:
        """Create the file with ``data``, unless it exists. Returns whether this call created it.

        Of several concurrent calls one returns True on local file systems, where the file is also
        synced to disk, and on S3, with botocore. On other file systems, several may do so if they
        come at the same moment.

        Raises:
            OSError: the file system refuses.
        """
        if self.scheme in S3:
            return put_conditionally(self.authority, self.path[1:], data, self.options)
        if self.scheme != LOCAL:
            if self.exists():
                return False
            self.write_bytes(data)
            return True
        try:
            with self._beside(data) as temporary:
                temporary.sync()
                os.link(temporary.path, self.path)
        except FileExistsError:
            return False
        except OSError as problem:
            if problem.errno not in _NO_LINKS:
                raise
            with suppress(FileExistsError), open(self.path, "xb") as file:
                file.write(data)
                return True
            return False
        self.parent.sync()
        return True

    @contextmanager
    def _beside(self, data: bytes) -> Iterator["Location"]:
        """A temporary file with ``data`` in the same directory; deleted after the block."""
        temporary = self.with_name(f".{self.name}.{uuid4().hex}.tmp")
        try:
            temporary._write(data)
            yield temporary
        finally:
            temporary.delete()

    def _write(self, data: bytes) -> None:
        with self._told(), self.open_output() as file:
            file.write(data)

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
        with self._told() as (system, path):
            try:
                system.move(path, other.filesystem().path)
            except pa.ArrowNotImplementedError:  # Azure without a hierarchical namespace
                with self.open_input() as read, other.open_output() as write:
                    shutil.copyfileobj(read, write, _COPIED)
                system.delete_file(path)

    def delete(self) -> None:
        """Delete the file, if it exists."""
        if self.scheme == LOCAL:
            Path(self.path).unlink(missing_ok=True)
            return
        with suppress(FileNotFoundError), self._told() as (system, path):
            system.delete_file(path)

    def delete_tree(self) -> None:
        """Delete a directory and everything in it, if it exists."""
        with suppress(FileNotFoundError), self._told() as (system, path):
            system.delete_dir(path)

    def make_directory(self) -> None:
        """Create the directory and its parents, if the file system has directories."""
        with self._told() as (system, path):
            if not isinstance(
                system, pafs.S3FileSystem | pafs.GcsFileSystem | pafs.AzureFileSystem
            ):
                system.create_dir(path, recursive=True)

    def filesystem(self) -> Opened:
        """The pyarrow file system and the path in it, for functions of pyarrow."""
        return opened(self.scheme, self.authority, self.path, self.options)

    @contextmanager
    def _told(self) -> Iterator[Opened]:
        """Turn errors of remote file systems in the block into one-line errors that name this
        location."""
        try:
            yield self.filesystem()
        except FileSystemError:
            raise
        except FAILURES as problem:
            if self.scheme == LOCAL or str(self) in str(problem):
                raise
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
        FileSystemError: ``place`` is a file of another machine.
    """
    if isinstance(place, Location):
        return place
    text = os.fspath(place)
    found = None if text.startswith("file:") else _URI.fullmatch(text)
    if found is None:
        if text.startswith("file:"):
            url = urlsplit(text)
            if url.netloc not in ("", "localhost"):
                raise FileSystemError(f"expected a path on this machine, got {text!r}")
            text = unquote(url.path)
        # Like pathlib: does not resolve links or "..".
        return Location(LOCAL, "", str(Path(text).absolute()))
    scheme, authority, path = found[1].lower(), found[2], found[3]
    query = _QUERY.search(path)
    if query is not None:
        path = path[: query.start()]
    options = options_of(scheme, authority, query[1] if query else "", settings)
    return Location(scheme, authority, path.rstrip("/"), options)


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


def settings_of(spark: Any) -> dict[str, str]:
    """The settings of a session that ``location`` may use."""
    return {
        name: value for name, value in spark.conf.getAll.items() if name.startswith("spark.hadoop.")
    }
