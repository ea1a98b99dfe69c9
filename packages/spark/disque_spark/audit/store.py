"""The output directory of an audit: immutable files, and a manifest that lists those in use.

    OUT/manifests/000002.json            the manifest with the highest number is the current one
    OUT/data/jobs/day=2026-11-24/...     the files of the tables, by the day of the last event
    OUT/current -> views/000002          links to the files of the current version

A version exists once its manifest does, which is created atomically. ``current`` and ``views`` are
for programs that read the tables by path. The version before the current one and its files are kept
for readers that still use it.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from disque_spark.audit.manifest import (
    COMPRESSED,
    FINDINGS,
    HELD_JOBS,
    JOBS,
    MINUTES,
    TICKS,
    Manifest,
)
from disque_spark.files import Location, Place, location
from disque_spark.parquet import write_file

__all__ = ["COMPRESSED", "Manifest", "Store", "StoreError"]

MANIFEST = "manifest.json"  # of old versions, which had no days
TABLES = (JOBS, MINUTES, FINDINGS, TICKS)
EMPTY_DAY = "1970-01-01"
_DIGITS = 6
_KEPT = 2


class StoreError(Exception):
    """The output directory is invalid; the text says which, and why."""


class BusyError(StoreError):
    """Another audit is writing to the directory."""


class Store:
    """The output directory of an audit.

    Args:
        directory: the directory; ``locked`` creates it if necessary.

    Attributes:
        manifest: manifest of the current version.
    """

    def __init__(self, directory: Place) -> None:
        self.directory = location(directory)
        self._manifests = self.directory / "manifests"
        self._local = self.directory.local
        self._pointer = Path(self.directory.path, "current")
        self._views = Path(self.directory.path, "views")
        self.manifest = Manifest()
        self.load()

    @property
    def current(self) -> Path | Location | None:
        """The current version: a directory with its tables, or on remote file systems its manifest;
        None: there is none."""
        if not self.manifest.version:
            return None
        name = f"{self.manifest.version:0{_DIGITS}}"
        if self._local is None:
            return self._manifests / f"{name}.json"
        return (self._old_versions if self.manifest.parts else self._views) / name

    @property
    def old_jobs(self) -> list[Location]:
        """The files of jobs written by an old version, which had no days."""
        if not self.manifest.parts or not isinstance(self.current, Path):
            return []
        return (location(self.current) / "jobs" / "*" / "*.parquet").glob()

    @property
    def _old_versions(self) -> Path:
        return Path(self.directory.path, "versions")

    def load(self) -> None:
        """Read the manifest again. Raises StoreError if it is invalid."""
        versions = self._versions()
        if versions:
            self.manifest = self._read(versions[-1])
        elif self._local is not None and self._pointer.is_symlink():
            self.manifest = read_old(self._pointer.resolve())

    def _versions(self) -> list[int]:
        with suppress(FileNotFoundError):
            names = [file.name.partition(".") for file in self._manifests.files(recursive=False)]
            return sorted(int(name) for name, _, end in names if name.isdecimal() and end == "json")
        return []

    def _read(self, version: int) -> Manifest:
        path = self._manifests / f"{version:0{_DIGITS}}.json"
        try:
            return Manifest.of(path.read_bytes().decode())
        except (ValueError, TypeError, KeyError) as problem:
            raise StoreError(f"{path}: {problem}") from problem

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other audits on this machine from writing a version during the block. On remote file
        systems, a conflict shows up in ``commit``.

        Raises:
            BusyError: another audit is writing.
            StoreError: the directory is invalid.
        """
        self.directory.make_directory()
        if self._local is None:
            self.load()
            yield
            return
        descriptor = os.open(self._local / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise BusyError(f"another audit is writing to {self.directory}") from None
        try:
            if self._pointer.exists() and not self._pointer.is_symlink():
                raise StoreError(f"{self._pointer} is in the way: it is not a link of an audit")
            self.load()
            if isinstance(self.current, Path) and self._shown() != self.current:
                self._show(self.manifest)  # the run before died after its commit
                self._point(self.manifest)
            yield
        finally:
            os.close(descriptor)

    # ---- files --------------------------------------------------------------------------------

    def place(self, table: str, day: str = "") -> Location:
        """The directory of a table, or of a day of it."""
        place = self.directory / "data" / table
        return place / f"day={day}" if day else place

    def paths(self, table: str, manifest: Manifest | None = None) -> list[Location]:
        """The files of a table in the current version, or in another one."""
        manifest = manifest or self.manifest
        files = manifest.files(table).items()
        return [self.place(table, day) / name for day, names in files for name in names]

    def stamp(self) -> str:
        """A prefix for the names of the next version's files."""
        return f"{self.manifest.version + 1:0{_DIGITS}}-{uuid4().hex[:8]}"

    # ---- versions -----------------------------------------------------------------------------

    def commit(self, manifest: Manifest, schemas: dict[str, pa.Schema] | None = None) -> None:
        """Make this the current version.

        Args:
            manifest: manifest of the new version.
            schemas: schemas of the tables, for empty files.

        Raises:
            BusyError: another audit has made a version meanwhile.
        """
        old = self.manifest
        manifest.version = old.version + 1
        for table, schema in (schemas or {}).items():
            self._write_empty(table, schema)
        for table, days in manifest.own_files().items():
            for day, names in days.items():
                if f"{table}/{day}" in manifest.changed:
                    self._sync(self.place(table, day), names)
        self._put(manifest)
        self.manifest = manifest
        if self._local is not None:
            self._show(manifest)
            self._point(manifest)
        self._tidy(old)

    def _put(self, manifest: Manifest) -> None:
        """Create the file of the manifest. Raises BusyError if it exists."""
        path = self._manifests / f"{manifest.version:0{_DIGITS}}.json"
        if not path.put_new(manifest.text().encode()):
            raise BusyError(f"another audit was writing to {self.directory}")

    def _write_empty(self, table: str, schema: pa.Schema) -> None:
        path = self.place("empty") / f"{table}.parquet"
        if self._local is not None and not path.exists():
            write_file(path, schema.empty_table())

    def _sync(self, directory: Location, names: set[str]) -> None:
        version = f"{self.manifest.version + 1:0{_DIGITS}}-"
        new = [name for name in names if name.startswith(version)]
        for name in new:
            (directory / name).sync()
        if new:
            directory.sync()

    def _tidy(self, old: Manifest) -> None:
        """Delete files that neither this version nor the one before needs."""
        manifest = self.manifest
        kept = [manifest.own_files(), old.own_files()]
        for place in {*manifest.changed, *old.changed}:
            table, _, day = place.partition("/")
            needed = set().union(*(files.get(table, {}).get(day, ()) for files in kept))
            self._delete(self.place(table, day), needed)
        for version in self._versions():
            if version <= manifest.version - _KEPT:
                (self._manifests / f"{version:0{_DIGITS}}.json").delete()
        if self._local is None:
            return
        for path in _entries(self._views):
            if path.name.isdecimal() and int(path.name) <= manifest.version - _KEPT:
                shutil.rmtree(path, ignore_errors=True)
        self._tidy_old_views()
        for path in _entries(self._old_versions):
            number = int(path.name) if path.name.isdecimal() else None
            if path.name == ".new" or (number is not None and number <= manifest.version - _KEPT):
                shutil.rmtree(path, ignore_errors=True)

    def _delete(self, directory: Location, needed: set[str]) -> None:
        with suppress(FileNotFoundError):
            for file in directory.files(recursive=False):
                version = file.name.partition("-")[0]
                if file.name in needed or not version.isdecimal():
                    continue
                if int(version) <= self.manifest.version:
                    file.delete()
        if directory.local is not None and not needed and directory.name.startswith("day="):
            with suppress(OSError):
                directory.local.rmdir()

    # ---- views --------------------------------------------------------------------------------

    def _shown(self) -> Path | None:
        """The target of ``current``."""
        if not self._pointer.is_symlink():
            return None
        return Path(self.directory.path, self._pointer.readlink())

    def _show(self, manifest: Manifest) -> None:
        """Create links to the files of a version. The directories are no links, since many programs
        do not look into those for a pattern with ``**``."""
        place = self._views / f"{manifest.version:0{_DIGITS}}"
        shutil.rmtree(place, ignore_errors=True)
        for table in TABLES:
            (place / table).mkdir(parents=True)
            files = manifest.files(table)
            for day, names in files.items():
                target = place / table / f"day={day}"
                target.mkdir()
                source = Path("../../../../data", table, target.name)
                for name in names:
                    (target / name).symlink_to(source / name)
            empty = self.place("empty") / f"{table}.parquet"
            if not files and empty.exists():
                day_place = place / table / f"day={EMPTY_DAY}"
                day_place.mkdir()
                (day_place / empty.name).symlink_to(Path("../../../../data/empty") / empty.name)
        if manifest.held:
            (place / HELD_JOBS).mkdir()
            for name in manifest.held:
                source = Path("../../..") / "data" / HELD_JOBS / name
                (place / HELD_JOBS / name).symlink_to(source)

    def _point(self, manifest: Manifest) -> None:
        """Point ``current`` to a version."""
        new = Path(self.directory.path, ".current")
        new.unlink(missing_ok=True)
        new.symlink_to(Path("views") / f"{manifest.version:0{_DIGITS}}")
        new.rename(self._pointer)
        self.directory.sync()

    def _tidy_old_views(self) -> None:
        """Delete the directories to which days of older programs were links."""
        old = [self._views / table for table in TABLES if (self._views / table).is_dir()]
        if old and not any(day.is_symlink() for day in self._views.glob("[0-9]*/*/day=*")):
            for path in old:
                shutil.rmtree(path, ignore_errors=True)


def read_old(directory: Path) -> Manifest:
    """Read the manifest of an old version, which had no days. Raises StoreError if invalid."""
    path = directory / MANIFEST
    try:
        manifest = Manifest(**json.loads(path.read_text()))
    except FileNotFoundError:
        raise StoreError(f"no audit at {directory}: it has no {MANIFEST}") from None
    except (ValueError, TypeError) as problem:
        raise StoreError(f"{path}: {problem}") from problem
    if manifest.version < 1:
        raise StoreError(f"{path}: has no version")
    # Mark it as an old version, even if it had no parts.
    manifest.parts = manifest.parts or [0]
    return manifest


def _entries(directory: Path) -> list[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return list(directory.iterdir())
    return []
