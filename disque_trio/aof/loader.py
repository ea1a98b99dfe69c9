"""Loads an append-only file in steps, so that clients can be answered -LOADING meanwhile."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from disque_trio.aof.checksums import CheckedFile, Sums, read_sums
from disque_trio.aof.dataset import Dataset
from disque_trio.aof.format import AofError, RecordReader, describe

RECORDS_A_STEP: Final = 1000


class Damaged(NamedTuple):
    """A record that is not as it was written.

    Attributes:
        record: what it is, for people.
        offset: where it is damaged.
        lost: it is left out; otherwise it was repaired, or can do no harm.
    """

    record: str
    offset: int
    lost: bool


class Loader:
    """Loads one file.

    Args:
        path: the file; it need not exist.
        dataset: gets its records; its ``now`` has to be set.
        queue_jobs: queue the jobs that were queued (aof-enqueue-jobs-once).
        sums: the checksums of the file; None: they are read now.
        begin: where to begin; what is before that is known already.

    Attributes:
        total: bytes in the file.
        loaded: bytes processed.
        records: commands.
        jobs: jobs, or events, taken.
        sums: the checksums of the file.
        checked: the file, once it is open.
        damaged: the records that are not as they were written.
    """

    def __init__(
        self,
        path: str,
        dataset: Dataset,
        queue_jobs: bool,
        sums: Sums | None = None,
        begin: int = 0,
    ) -> None:
        self.total = os.stat(path).st_size if os.path.exists(path) else 0
        self.loaded = begin
        self.records = 0
        self.jobs = 0
        self.sums: Sums = read_sums(path) if sums is None else sums
        self.checked: CheckedFile | None = None
        self.damaged: list[Damaged] = []
        self._path = path
        self._dataset = dataset
        self._queue_jobs = queue_jobs
        self._now = dataset.now

    def steps(self) -> Iterator[None]:
        """Load the file; yields now and then.

        Raises:
            AofError: the file is damaged or ends inside a record; everything before that is loaded,
                and ``loaded`` is where it ends.
            OSError: the file cannot be read.
        """
        if self.total == 0:
            return
        dataset = self._dataset
        queue_jobs = self._queue_jobs
        with Path(self._path).open("rb", buffering=0) as opened:
            file = self.checked = CheckedFile(opened.fileno(), self.sums)
            file.seek(self.loaded)
            reader = RecordReader(file, self.loaded)
            while True:
                room = RECORDS_A_STEP - self.records % RECORDS_A_STEP
                records = 0
                if not file.marks or file.damaged_up_to <= reader.offset:
                    at, records, jobs = dataset.load_usual(
                        reader.buffer, reader.at, room, queue_jobs
                    )
                    reader.skip_to(at)
                    self.loaded = reader.offset
                    self.records += records
                    self.jobs += jobs
                if records < room:
                    command = next(reader, None)
                    if command is None:
                        return
                    mark = file.found(self.loaded, reader.offset) if file.marks else None
                    lost = False
                    try:
                        if mark is not None and mark.bit < 0:
                            lost = dataset.load_suspect(command)
                        else:
                            self.jobs += dataset.load_record(command, queue_jobs)
                    except ValueError as failure:
                        raise AofError(self.loaded, str(failure), False) from failure
                    if mark is not None:
                        what = f"{describe(command)} at {self.loaded}"
                        self.damaged.append(Damaged(what, mark.start, lost))
                    self.loaded = reader.offset
                    self.records += 1
                if self.records % RECORDS_A_STEP == 0:
                    yield
                    dataset.now = self._now  # requests served meanwhile may have changed it
