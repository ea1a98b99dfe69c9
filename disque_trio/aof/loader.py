"""Loads an append-only file in steps, so that clients can be answered -LOADING meanwhile."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from disque_trio.aof.dataset import Dataset
from disque_trio.aof.format import AofError, RecordReader

RECORDS_A_STEP: Final = 1000


class Loader:
    """Loads one file.

    Args:
        path: the file; it need not exist.
        dataset: gets its records; its ``now`` has to be set.
        queue_jobs: queue the jobs that were queued (aof-enqueue-jobs-once).

    Attributes:
        total: bytes in the file.
        loaded: bytes processed.
        records: commands.
        jobs: jobs, or events, taken.
    """

    def __init__(self, path: str, dataset: Dataset, queue_jobs: bool) -> None:
        self.total = os.stat(path).st_size if os.path.exists(path) else 0
        self.loaded = 0
        self.records = 0
        self.jobs = 0
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
        with Path(self._path).open("rb", buffering=0) as file:
            reader = RecordReader(file)
            while True:
                room = RECORDS_A_STEP - self.records % RECORDS_A_STEP
                at, records, jobs = dataset.load_usual(reader.buffer, reader.at, room, queue_jobs)
                reader.skip_to(at)
                self.loaded = reader.offset
                self.records += records
                self.jobs += jobs
                if records < room:
                    command = next(reader, None)
                    if command is None:
                        return
                    try:
                        self.jobs += dataset.load_record(command, queue_jobs)
                    except ValueError as failure:
                        raise AofError(self.loaded, str(failure), False) from failure
                    self.loaded = reader.offset
                    self.records += 1
                if self.records % RECORDS_A_STEP == 0:
                    yield
                    dataset.now = self._now  # requests served meanwhile may have changed it
