"""Names files and directories on any file system, and works on them: the one place that knows how.

A ``Location`` is a value. Executors open it again: what keys and endpoint there are goes along with
it when it is sent to them, but is not in its text.
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

from disque_trio.disk import sync_directory, sync_file
from disque_trio.spark.creating import put_new
from disque_trio.spark.filesystems import (
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
from disque_trio.spark.remote import (
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

BUFFER = 256 << 10  # bytes that a read of a remote file asks for, at least
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://([^/?]*)(.*)", re.DOTALL)
_QUERY = re.compile(r"\?(\w+=[^&?]*(?:&\w+=[^&?]*)*)$")


@dataclass(frozen=True, order=True)
class Location:
    """A file or a directory on a file system.

    Attributes:
        scheme: of the URI; ``file`` for this machine's. authority: of the URI: bucket, host.
        path: begins with a slash; "": the whole bucket.
        options: of the file system.
        length: bytes, as a list of files said; None: nobody did.
        start: bytes at its beginning that its reader has read before, of a file that grows.
    """

    scheme: str
    authority: str
    path: str
    options: Options = field(default=(), repr=False, compare=False)
    length: int | None = field(default=None, repr=False, compare=False)
    start: int = field(default=0, repr=False, compare=False)

    # ---- its names -------------------------------------------------------------------------------

    def __str__(self) -> str:
        """For people: a path of this machine as it is, others as URIs."""
        return self.path if self.scheme == LOCAL else self.uri

    @property
    def uri(self) -> str:
        """As Spark takes it, without options."""
        scheme = "s3a" if self.scheme in S3 else self.scheme
        return f"{scheme}://{self.authority}{self.path}"

    @property
    def name(self) -> str:
        """Its last part."""
        return self.path.rpartition("/")[2]

    @property
    def local(self) -> Path | None:
        """The path, where it is one of this machine."""
        return Path(self.path) if self.scheme == LOCAL else None

    @property
    def parent(self) -> "Location":
        """The directory that it is in."""
        return self._at(self.path.rpartition("/")[0])

    def __truediv__(self, name: str) -> "Location":
        """What is called so in this directory, or in one below it."""
        return self._at(f"{self.path.rstrip('/')}/{name}")

    def with_name(self, name: str) -> "Location":
        """What is called so in the same directory."""
        return self.parent / name

    def _at(self, path: str) -> "Location":
        if self.scheme == LOCAL:
            path = path or "/"
        return replace(self, path=path, length=None, start=0)

    # ---- what is there ---------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether a file or a directory is there."""
        if self.scheme == LOCAL:
            return os.path.exists(self.path)  # noqa: PTH110
        return bool(self._info().type != pafs.FileType.NotFound)

    def is_dir(self) -> bool:
        """Whether it is a directory; where a file system has none: whether there are files below
        it."""
        if self.scheme == LOCAL:
            return os.path.isdir(self.path)  # noqa: PTH112
        return bool(self._info().type == pafs.FileType.Directory)

    def is_file(self) -> bool:
        """Whether it is a file."""
        if self.scheme == LOCAL:
            return os.path.isfile(self.path)  # noqa: PTH113
        return bool(self._info().type == pafs.FileType.File)

    def size(self) -> int:
        """Bytes of the file; what a list of files has said of it before stays so.

        Raises:
            FileNotFoundError: there is none.
        """
        if self.length is not None:
            return self.length
        if self.scheme == LOCAL:
            return os.stat(self.path).st_size  # noqa: PTH116
        info = self._info()
        if info.type != pafs.FileType.File:
            raise FileNotFoundError(f"no file at {self}")
        return int(info.size)

    def files(self, recursive: bool = True) -> list["Location"]:
        """The files in this directory, or those in all below it as well, sorted. Links are
        followed.

        Raises:
            FileNotFoundError: there is no such directory, or no such bucket.
        """
        if self.scheme == LOCAL:
            return sorted(self._walk(recursive))
        found = self._list(recursive, pafs.FileType.File)
        return [replace(place, length=info.size) for place, info in found]

    def directories(self) -> list["Location"]:
        """The directories in this one, sorted.

        Raises:
            FileNotFoundError: there is no such directory, or no such bucket.
        """
        if self.scheme == LOCAL:
            with os.scandir(self.path) as entries:
                return sorted(self / entry.name for entry in entries if entry.is_dir())
        return [place for place, _ in self._list(False, pafs.FileType.Directory)]

    def glob(self) -> list["Location"]:
        """What is there if this is taken for a pattern: with ``*``, ``?`` and ``[...]`` within
        names, and ``**`` for any number of directories. Without them: it itself, if it is there.

        Raises:
            OSError: the file system says no, or has no such bucket.
        """
        if self.scheme == LOCAL:
            if not MAGIC.search(self.path):
                return [self] if self.exists() else []
            return sorted(self._at(path) for path in glob(self.path, recursive=True))  # noqa: PTH207
        base, patterns = split_pattern(self.path)
        if not patterns:
            return [self] if self.exists() else []
        deep = len(patterns) > 1 or "**" in patterns
        try:
            found = self._at(base)._list(deep, None)
        except FileNotFoundError:
            if not replace(self, path="").exists():
                raise  # it is not even the bucket
            return []
        return [
            replace(place, length=info.size)
            for place, info in found
            if matches(place.path[len(base) + 1 :].split("/"), patterns)
        ]

    def ages(self) -> list[tuple["Location", float]]:
        """The files in this directory, and when each was written, s by the file system's clock."""
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
        if not os.path.isdir(self.path):  # noqa: PTH112
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
            # A name is of a file if it is none of a directory; those of lost links are neither.
            yield from (self._at(os.path.join(place, name)) for name in names)  # noqa: PTH118

    # ---- reading and writing ---------------------------------------------------------------------

    def open_input(self, buffer: int = BUFFER) -> BinaryIO:
        """The file, for reading anywhere in it.

        Args:
            buffer: bytes that are asked for at once, of a file that is elsewhere; 0: the reader has
                a buffer of its own.

        Raises:
            FileNotFoundError: there is none.
        """
        if self.scheme == LOCAL:
            return open(self.path, "rb", -1 if buffer else 0)  # noqa: PTH123
        with self._told() as there:
            file = there.system.open_input_file(there.path)
        return cast(
            BinaryIO, io.BufferedReader(Reading(str(self), self.authority, file), buffer or BUFFER)
        )

    def open_output(self) -> BinaryIO:
        """A new file, for writing; one that is there is replaced. Its directory is made.

        On object stores it is there, as a whole, when it is closed; on others from the beginning.
        So files that others look for are made by ``write_bytes`` or ``put_new``.
        """
        if self.scheme == LOCAL:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)  # noqa: PTH103, PTH120
            return open(self.path, "wb")  # noqa: PTH123
        with self._told() as there:
            if there.needs_directories:
                there.system.create_dir(there.path.rpartition("/")[0], recursive=True)
            return cast(BinaryIO, there.system.open_output_stream(there.path, compression=None))

    def read_bytes(self) -> bytes:
        """All that is in the file. Raises FileNotFoundError: there is none."""
        with self.open_input() as file:
            return file.read()

    def write_bytes(self, data: bytes) -> None:
        """Replace the file, or make it. Who reads it meanwhile gets the old or the new one."""
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
        """Make the file with all of ``data``, if there is none; returns whether. Of several who do
        so at the same time one gets True: ``creating.put_new`` says how."""
        return put_new(self, data)

    def sync(self) -> None:
        """Bring a file, or the names in a directory, to the disk of this machine. Elsewhere a file
        is safe when it is closed."""
        if self.scheme == LOCAL:
            (sync_directory if self.is_dir() else sync_file)(Path(self.path))

    # ---- moving and deleting ---------------------------------------------------------------------

    def rename(self, other: "Location") -> None:
        """Give the file another name on the same file system; one that is there is replaced. On
        object stores it is copied, which is not atomic.

        Raises:
            FileNotFoundError: there is none.
        """
        if self.scheme == LOCAL:
            os.replace(self.path, other.path)  # noqa: PTH105
            return
        with self._told() as there:
            moved(there.system, there.path, other.filesystem().path)

    def delete(self) -> None:
        """Delete the file, if there is one."""
        if self.scheme == LOCAL:
            Path(self.path).unlink(missing_ok=True)
            return
        with suppress(FileNotFoundError), self._told() as there:
            deleted(there.system, there.path)

    def delete_tree(self) -> None:
        """Delete a directory with all that is in it, if there is one."""
        if self.scheme == LOCAL:
            with suppress(FileNotFoundError):
                shutil.rmtree(self.path)
            return
        with suppress(FileNotFoundError), self._told() as there:
            there.system.delete_dir(there.path)

    def make_directory(self) -> None:
        """Make it, and those above it, where a file system has directories."""
        if self.scheme == LOCAL:
            os.makedirs(self.path, exist_ok=True)  # noqa: PTH103
            return
        with self._told() as there:
            if there.needs_directories:
                there.system.create_dir(there.path, recursive=True)

    def filesystem(self) -> Opened:
        """The file system of pyarrow and the path in it, for functions of pyarrow's."""
        return opened(self.scheme, self.authority, self.path, self.options)

    @contextmanager
    def _told(self) -> Iterator[Opened]:
        """What goes wrong in the block is told in a line that names this location."""
        try:
            yield self.filesystem()
        except FileSystemError:
            raise
        except FAILURES as problem:
            raise in_a_line(str(self), self.authority, problem) from problem


Place = str | os.PathLike[str] | Location  # what ``location`` takes


def location(place: Place, settings: Mapping[str, str] | None = None) -> Location:
    """The location of a path, or of a URI.

    Args:
        place: ``/path``, ``file:///path``, ``s3a://bucket/key``, ``abfss://container@account...``,
            ``gs://bucket/key``, ``hdfs://host:port/path``, or what fsspec knows. A URI may have
            options behind a ``?``, with pyarrow's names: ``s3a://bucket/x?region=eu-central-1``.
        settings: of Spark (``settings_of``): those of file systems count.

    Raises:
        FileSystemError: nobody can say where that is.
    """
    if isinstance(place, Location):
        return place
    text = os.fspath(place)
    found = None if text.startswith("file:") else _URI.fullmatch(text)
    if found is None:
        path = local_path(text) if text.startswith("file:") else text
        # As pathlib does it: links stay, and so do two dots.
        return Location(LOCAL, "", str(Path(path).absolute()))
    scheme, authority, path = found[1].lower(), found[2], found[3]
    query = _QUERY.search(path)
    if query is not None:
        path = path[: query.start()]
    options = options_of(scheme, authority, query[1] if query else "", settings)
    return Location(scheme, authority, path.rstrip("/"), options)


def settings_of(spark: Any) -> dict[str, str]:
    """The settings of a session that ``location`` knows."""
    return {
        name: value for name, value in spark.conf.getAll.items() if name.startswith("spark.hadoop.")
    }
