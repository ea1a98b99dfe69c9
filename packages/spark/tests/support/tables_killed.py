"""Users of an archive's table, in processes that may be killed: a writer, compactions, and a reader
that checks for missing and duplicate jobs."""

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

from disque_spark.files import location
from disque_spark.lakehouse.files import read
from disque_spark.lakehouse.formats import table_of
from disque_spark.lakehouse.settings import TableSettings
from disque_spark.lakehouse.table import StreamBatch, Table, Upkeep
from packages.spark.tests.support.jobs_files import COLUMNS, QUERY, rows, written

QUEUES = ("a", "b/c")
JOBS = 3  # per queue and batch
AGE = timedelta(30)  # of jobs to remove
# Imported once, not in each process, and not used before the fork.
LIBRARIES = [
    *(f"disque_spark.lakehouse.{format}" for format in ("parquet", "delta", "iceberg")),
    "pyiceberg.catalog.sql",
]


class Place(NamedTuple):
    """A table, and the day of its jobs. ``done`` plays the role of Spark's checkpoint."""

    directory: Path
    format: str
    day: date

    def table(self) -> Table:
        return table_of(location(self.directory / "table"), TableSettings(self.format))

    @property
    def done(self) -> int:
        """The number of committed batches."""
        try:
            return int(json.loads((self.directory / "done").read_bytes()))
        except FileNotFoundError:
            return 0

    def note(self, done: int) -> None:
        new = self.directory / "done.new"
        new.write_text(json.dumps(done))
        new.rename(self.directory / "done")

    def upkeep(self) -> Upkeep:
        return Upkeep(history=0, days=1)


def ids(number: int) -> set[str]:
    """The jobs of a batch that must stay."""
    return {f"{number}-{queue}-{job}" for queue in QUEUES for job in range(JOBS)}


def write_one(place: Place, table: Table) -> None:
    """Write the next batch, or again the one that was not recorded."""
    number = place.done
    batches = [
        rows([f"{number}-{queue}-{job}" for job in range(JOBS)], queue, place.day)
        for queue in QUEUES
    ]
    if number % 4 == 1:
        batches.append(rows([f"{number}-old"], QUEUES[0], place.day - AGE))
    staging = location(place.directory / "table" / f"_staging-{os.getpid()}-{number}")
    files = written(staging, table.whole, *batches)
    table.add(StreamBatch(QUERY, number), files, staging)
    place.note(number + 1)


def writes(place: Place) -> None:
    table = place.table()
    while True:
        write_one(place, table)


def compacts(place: Place) -> None:
    table = place.table()
    while True:
        table.keep_up(place.upkeep(), lambda text: None)


def found(table: Table) -> list[str]:
    """The ids of all jobs.

    Raises:
        FileNotFoundError: a file has disappeared since the listing.
    """
    return [one.as_py() for file in table.files() for part in read(file.path) for one in part["id"]]


def reads(place: Place) -> None:
    while True:
        done = place.done
        with suppress(FileNotFoundError):  # of a version that has been removed meanwhile
            check(place, found(place.table()), done)
            (place.directory / f"read-{os.getpid()}").touch()


def check(place: Place, jobs: list[str], done: int) -> None:
    """Check that everything written before the read is there, exactly once."""
    count = Counter(jobs)
    missing = {one for number in range(done) for one in ids(number)} - count.keys()
    assert not missing, f"missing: {sorted(missing)}"
    twice = [one for one, times in count.items() if times > 1]
    assert not twice, f"twice: {twice}"
    wrong = {one for one in count if int(one.split("-")[0]) > place.done}
    assert not wrong, f"of no batch: {sorted(wrong)}"


ROLES: tuple[Callable[[Place], None], ...] = (writes, compacts, compacts, reads)


def run(directory: Path, format: str, enough: Callable[[int, int, int], bool], seed: int) -> Place:
    """Run them, and kill one after the other; returns when all are dead.

    Args:
        enough: returns whether to stop, from the number of kills, batches and completed reads.

    Raises:
        AssertionError: one has ended without being killed.
    """
    moments = random.Random(seed)
    place = Place(directory, format, datetime.now(UTC).date())
    (directory / "table").mkdir()
    place.table().create(COLUMNS)
    context = get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)

    def started(role: Callable[[Place], None]) -> ForkServerProcess:
        process = context.Process(target=role, args=(place,), daemon=True)
        process.start()
        return process

    running = [started(role) for role in ROLES]
    kills, span = 0, 0.5  # s
    try:
        while not enough(kills, place.done, len(list(directory.glob("read-*")))):
            wait([process.sentinel for process in running], moments.uniform(0, span))
            for process, role in zip(running, ROLES, strict=True):
                assert process.is_alive(), f"{role.__name__} ended with {process.exitcode}"
            number = moments.randrange(len(ROLES))
            _kill(running[number])
            kills += 1
            if kills > 8 * (place.done + 1):
                span *= 1.2  # the machine is too slow to make progress
            running[number] = started(ROLES[number])
    finally:
        for process in running:
            _kill(process)
    return place


def _kill(process: ForkServerProcess) -> None:
    process.kill()
    process.join()
    process.close()
