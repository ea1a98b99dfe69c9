"""Loading an append-only file into a node, in steps, so that the node can answer -LOADING and be
stopped meanwhile."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from disque_trio.aof.format import AofError, RecordReader
from disque_trio.core.machine import Machine

RECORDS_A_STEP: Final = 1000


class Loader:
    """The loading of one file.

    Args:
        path: the file; it need not exist.
        node: where its records go; its ``now`` has to be set.
        queue_jobs: queue the jobs that were queued (aof-enqueue-jobs-once).

    Attributes:
        total: bytes in the file. loaded: bytes done with. records: commands. jobs: jobs, or events,
            taken.
    """

    def __init__(self, path: str, node: Machine, queue_jobs: bool) -> None:
        self.total = os.stat(path).st_size if os.path.exists(path) else 0  # noqa: PTH110, PTH116
        self.loaded = 0
        self.records = 0
        self.jobs = 0
        self._path = path
        self._node = node
        self._queue_jobs = queue_jobs
        self._now = node.now

    def steps(self) -> Iterator[None]:
        """Load; yields now and then.

        Raises:
            AofError: the file is damaged or ends inside of a record; what is before is loaded, and
                ``loaded`` is where that ends.
            OSError: it cannot be read.
        """
        if self.total == 0:
            return
        with Path(self._path).open("rb", buffering=0) as file:
            reader = RecordReader(file)
            for command in reader:
                try:
                    self.jobs += self._node.load_record(command, self._queue_jobs)
                except ValueError as failure:
                    raise AofError(self.loaded, str(failure), False) from failure
                self.loaded = reader.offset
                self.records += 1
                if self.records % RECORDS_A_STEP == 0:
                    yield
                    self._node.now = self._now  # whatever was served meanwhile
