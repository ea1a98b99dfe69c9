"""The output directory of an audit: versions of the tables, one of which is the current one.

    OUT/current -> versions/000002
    OUT/versions/000002/manifest.json, jobs/part=1/, jobs/part=2/, queue_minutes/, findings/

A version is complete before ``current`` leads to it, and is never changed after that. Files that
are the same in the next version are links to the same bytes. The version before the current one
is kept for those who still read it.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from disque_trio.disk import sync_directory, sync_file
from disque_trio.spark.audit.gaps import Ends, missing_between

MANIFEST = "manifest.json"
COMPRESSED = -1
_DIGITS = 6
_KEPT = 2


class StoreError(Exception):
    """The output directory is invalid; the text says which and why."""


@dataclass
class Manifest:
    """The inputs and contents of a version.

    Attributes:
        version: counts from 1; 0: there is none yet.
        nodes: ids; in traces a node is its place in this list.
        segments: name of each file that was read, and its bytes; COMPRESSED if it was that.
        parts: numbers of the parts of the jobs table.
        events, dropped: how many are in the logs, and are said to be missing there.
        unknown: events that this program does not know. damaged: lines that are no events.
        first, last: times of the first and the last event, ms; 0: there is none.
        jobs: rows of the jobs table.
        settings: what the findings depend on.
        ends: of each segment what its lines say of it, the fields of ``gaps.Ends``.
        peers: ids of nodes that are named in the logs. gone: ids of nodes that are known to have
            been taken out for good.
        aofs: how many append-only files there were.
    """

    version: int = 0
    nodes: list[str] = field(default_factory=list)
    segments: dict[str, int] = field(default_factory=dict)
    parts: list[int] = field(default_factory=list)
    events: int = 0
    dropped: int = 0
    unknown: int = 0
    damaged: int = 0
    first: int = 0
    last: int = 0
    jobs: int = 0
    settings: dict[str, int] = field(default_factory=dict)
    ends: dict[str, list[Any]] = field(default_factory=dict)
    aofs: int = 0
    peers: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    @property
    def without_logs(self) -> list[str]:
        """The nodes that are named, and whose logs are not here."""
        return [node for node in self.peers if node not in self.nodes]

    @property
    def missing_nodes(self) -> list[str]:
        """Those of them whose logs should be here."""
        return [node for node in self.without_logs if node not in self.gone]

    @property
    def holders(self) -> list[str]:
        """The nodes that may still have jobs."""
        return [node for node in [*self.nodes, *self.without_logs] if node not in self.gone]

    @property
    def missing_segments(self) -> dict[str, int]:
        """See ``missing_between``."""
        return missing_between(self.all_ends(), self.segments)

    def all_ends(self) -> dict[str, Ends]:
        """``ends`` as what they are."""
        return {name: Ends(*fields) for name, fields in self.ends.items()}

    @classmethod
    def read(cls, directory: Path) -> Self:
        """That of a version. Raises StoreError."""
        path = directory / MANIFEST
        try:
            manifest = cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            raise StoreError(f"no audit at {directory}: it has no {MANIFEST}") from None
        except (ValueError, TypeError) as problem:
            raise StoreError(f"{path}: {problem}") from problem
        if manifest.version < 1:
            raise StoreError(f"{path}: it is of no version")
        return manifest


class Store:
    """The output directory of an audit.

    Args:
        directory: is made if it is not there.

    Attributes:
        manifest: of the current version.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._versions = directory / "versions"
        self._pointer = directory / "current"
        self.manifest = Manifest()
        self.load()

    @property
    def current(self) -> Path | None:
        """The directory of the current version; None if there is none."""
        if not self.manifest.version:
            return None
        return self._versions / f"{self.manifest.version:0{_DIGITS}}"

    def load(self) -> None:
        """Read the manifest again. Raises StoreError."""
        if self._pointer.is_symlink():
            self.manifest = Manifest.read(self._pointer.resolve())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes a version meanwhile. Raises StoreError if somebody does."""
        self.directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.directory / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StoreError(f"another audit is writing to {self.directory}") from None
        try:
            self.load()
            yield
        finally:
            os.close(descriptor)

    def begin(self) -> Path:
        """An empty directory for the next version."""
        path = self._versions / ".new"
        shutil.rmtree(path, ignore_errors=True)  # of an audit that died
        path.mkdir(parents=True)
        return path

    def commit(self, path: Path, manifest: Manifest) -> Path:
        """Make what is at ``path`` the current version. Returns where it is now."""
        manifest.version = self.manifest.version + 1
        (path / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1) + "\n")
        _sync(path)
        name = f"{manifest.version:0{_DIGITS}}"
        place = self._versions / name
        shutil.rmtree(place, ignore_errors=True)  # complete, but never became the current one
        path.rename(place)
        sync_directory(self._versions)
        new = self.directory / ".current"
        new.unlink(missing_ok=True)
        new.symlink_to(Path("versions") / name)
        new.rename(self._pointer)
        sync_directory(self.directory)
        self.manifest = manifest
        for old in self._versions.iterdir():
            if old.name.isdecimal() and int(old.name) <= manifest.version - _KEPT:
                shutil.rmtree(old, ignore_errors=True)
        return place


def link_tree(source: Path, target: Path) -> None:
    """The files below ``source`` also below ``target``, by links where the file system can."""

    def link(old: str, new: str) -> None:
        try:
            os.link(old, new)
        except OSError:
            shutil.copyfile(old, new)

    shutil.copytree(source, target, copy_function=link)


def _sync(path: Path) -> None:
    """All below ``path`` is on the disk."""
    for directory, _, names in os.walk(path):
        for name in names:
            sync_file(Path(directory) / name)
        sync_directory(Path(directory))
