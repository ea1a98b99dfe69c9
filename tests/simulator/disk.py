"""The disk of a machine: the append-only file, the progress file and nodes.conf."""

from collections.abc import Callable
from io import BytesIO
from random import Random

from disque_trio.aof.format import RecordReader
from disque_trio.node.core.node import Node
from disque_trio.protocol.progress import (
    MAGIC,
    ProgressReader,
    Run,
    pack_block,
    pack_run,
    pack_stopped,
)
from tests.simulator.events import SECOND
from tests.support.stopped import progress_records

OFF = "off"
EVERYSEC = "everysec"
ALWAYS = "always"


class Disk:
    """The files of one machine.

    Attributes:
        policy: OFF, EVERYSEC or ALWAYS.
        conf: the text of nodes.conf.
        extensions: what other nodes announced, by id, as in the file of policies.
        records: the append-only file, record by record.
        progress: the progress file, block by block; there is none if ``requeue`` is no.
    """

    def __init__(self, policy: str, requeue: bool = True) -> None:
        self.policy = policy
        self.pauses = b""  # the file of these
        self.requeue = requeue
        self.progress: list[bytes] = []
        self._boots = 0
        self._progress_synced = 0
        self.conf = ""
        self.extensions: dict[bytes, int] = {}
        self.records: list[bytes] = []
        self._synced = 0  # records that outlive the machine
        self._synced_at = 0

    def append(self, records: list[bytes], now: int) -> None:
        """Write the journal of a turn at the virtual time ``now``."""
        if self.policy == EVERYSEC and now - self._synced_at >= SECOND:
            # The sync that ran in between included what was there before.
            self._synced = len(self.records)
            self._progress_synced = len(self.progress)
            self._synced_at = now
        self.records += records
        if self.policy == ALWAYS:
            self._synced = len(self.records)

    def replace(self, records: list[bytes]) -> None:
        """Replace the file with a new one, which is synced."""
        self.records = records
        self._synced = len(records)

    def machine_dies(self, now: int, rng: Random) -> int:
        """Lose what was not synced, up to a random point. Returns how many records are lost."""
        self._boots += 1
        del self.progress[rng.randrange(self._progress_synced, len(self.progress) + 1) :]
        self._progress_synced = len(self.progress)
        if self.policy == EVERYSEC and now - self._synced_at >= SECOND:
            self._synced = len(self.records)
        keep = rng.randrange(self._synced, len(self.records) + 1)
        lost = len(self.records) - keep
        del self.records[keep:]
        self._synced = keep
        return lost

    def load(self, node: Node, queue_jobs: bool, ahead: Callable[[], bool] = lambda: False) -> None:
        """Load the append-only file into ``node``, whose ``now`` is set, unless ``ahead`` has
        loaded all that is in it."""
        if self.policy == OFF and not queue_jobs:
            self.replace([])
        if self.progress:
            self._load_progress(node, queue_jobs)
        if not ahead():
            for command in RecordReader(BytesIO(b"".join(self.records))):
                node.load_record(command, queue_jobs)
        node.recovery.finish()
        self.progress = []
        self._progress_synced = 0
        if self.policy == OFF:
            self.replace([])
        elif self.requeue:
            self._write_progress(node, False)
            node.progress.write = self.progress.append
            node.progress.recording = True

    def _load_progress(self, node: Node, at_once: bool) -> None:
        """Let ``node`` know what became of the jobs that it is about to load."""
        found = ProgressReader()
        found.read(BytesIO(b"".join(self.progress)))
        run = found.run
        stopped = found.stopped_at >= 0
        assert not stopped or found.stopped_at == len(self.records)
        if run is not None:
            same = run.boot == b"%d" % self._boots
            node.recovery.begin(found, stopped or run.synced or same, at_once)

    def _write_progress(self, node: Node, stopped: bool) -> None:
        run = Run(b"%d" % self._boots, self.policy == ALWAYS)
        self.progress.append(MAGIC + pack_block([pack_run(run)]))
        self.progress += map(pack_block, progress_records(node, stopped))
        self._progress_synced = len(self.progress)

    def stop(self, node: Node) -> None:
        """Write the progress file of ``node``, which has stopped; orders for
        the files of its jobs are carried out at once."""
        node.progress.recording = False
        self.progress = []
        if self.requeue:
            self._write_progress(node, True)
            self.progress.append(pack_block([pack_stopped(len(self.records))]))
            self._progress_synced = len(self.progress)
