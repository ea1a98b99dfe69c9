"""Merges the small files of tables with versions, and removes old days: Delta and Iceberg.

Every step is one commit, which removes files from the table and adds one that has their jobs. It
fails if one of the files is no longer in the table. So if two compactions conflict, or a compaction
and another deletion, only one succeeds, and no job is lost or duplicated. A compaction that dies
before the commit leaves a file that no version refers to; after it, nothing.

pyiceberg 0.12 cannot merge files. That of deltalake 1.6.6 (``optimize.compact``) does not notice
what another one has merged: jobs are then in the table twice.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import groupby
from typing import NamedTuple, Protocol
from uuid import uuid4

from disque_spark.files import Location
from disque_spark.lakehouse.files import DataFile, merged
from disque_spark.lakehouse.table import CompactionReport, Upkeep

COMPACTED = "part-c-"
STAGING = "_compactions"
REPLACED = "others have replaced or removed files meanwhile"
_ENOUGH = 0.75  # a file with this share of the target size is not merged


class CurrentFile(NamedTuple):
    """A file of the newest version of a table. ``name`` is its name in the table's metadata."""

    queue: str
    day: date
    name: str
    place: Location
    size: int

    @property
    def told(self) -> str:
        """Its queue and day, for people."""
        return f"{self.queue}, {self.day}"


class NotSwappedError(Exception):
    """A table was left unchanged; the text says why."""


class Versions(Protocol):
    """A table that has versions."""

    def held(self) -> list[CurrentFile]:
        """The files of its newest version."""

    def swap(self, old: Sequence[CurrentFile], new: DataFile | None, staging: Location) -> None:
        """Replace files of the table by another one, in one commit.

        Args:
            new: the new file, in ``staging``; None: remove the files.

        Raises:
            NotSwappedError: not all of ``old`` are in the table, or no commit succeeded.
        """


def remove_days(
    table: Versions, staging: Location, first: date | None, upkeep: Upkeep
) -> CompactionReport:
    """Remove the days before ``first``."""
    outcome = CompactionReport()
    old = [file for file in table.held() if first is not None and file.day < first]
    try:
        if old and not upkeep.dry_run:
            table.swap(old, None, staging)
        outcome.days = sorted({file.told for file in old})
    except NotSwappedError as why:
        outcome.waiting.append(f"old days: {why}")
    return outcome


def merge(
    table: Versions,
    staging: Location,
    upkeep: Upkeep,
    outcome: CompactionReport,
    progress: Callable[[str], None],
) -> None:
    """Merge the small files of each queue and day that is not to be removed."""
    files = [file for file in table.held() if file.told not in outcome.days]
    for group in groups(sorted(files), upkeep.target):
        progress(f"{outcome.before} files merged into {outcome.after}")
        new = staging / f"{uuid4().hex}.parquet"
        try:
            if not upkeep.dry_run:
                rows, size = merged([file.place for file in group], new)
                file = DataFile(new.name, group[0].queue, str(group[0].day), rows, size)
                table.swap(group, file, staging)
            outcome.before += len(group)
            outcome.after += 1
        except FileNotFoundError as problem:
            there = {file.name for file in table.held()}
            gone = problem if all(file.name in there for file in group) else REPLACED
            outcome.waiting.append(f"{group[0].told}: {gone}")
        except NotSwappedError as why:
            outcome.waiting.append(f"{group[0].told}: {why}")
        finally:
            new.delete()


def groups(files: Sequence[CurrentFile], target: int) -> Iterator[list[CurrentFile]]:
    """Yield groups of sorted files to merge into one of at most ``target`` bytes."""
    for _, own in groupby(files, lambda file: file.told):
        group: list[CurrentFile] = []
        size = 0
        for file in own:
            if file.size >= _ENOUGH * target:
                continue
            if size + file.size > target:
                if len(group) > 1:
                    yield group
                group, size = [], 0
            group.append(file)
            size += file.size
        if len(group) > 1:
            yield group
