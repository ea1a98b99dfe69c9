"""Nodes that end and start again with their files, in one process."""

from collections.abc import Callable
from io import BytesIO

import pytest

from disque_trio.aof.format import RecordReader
from disque_trio.protocol.progress import MAGIC, ProgressReader, pack_block, pack_stopped
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench


class Files:
    """The files of ``bench``: what it writes from now on.

    Attributes:
        records: of the append-only file.
        progress: the blocks of the progress file.
        damaged: ids of jobs whose records are not as they were written.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.progress: list[bytes] = [MAGIC]
        self.damaged: list[bytes] = []
        self._records: list[bytes] = []
        self._keep()

    def _keep(self) -> None:
        node = self.bench.node
        node.journaling = True
        node.progress.recording = True
        node.progress.write = self.progress.append

    @property
    def records(self) -> list[bytes]:
        self._records += self.bench.node.journal
        self.bench.node.journal.clear()
        return self._records

    def rewrite(self) -> None:
        """Replace the append-only file with a dump of all jobs."""
        node = self.bench.node
        node.start_dump()
        records, done = node.dump_step(1 << 40, 1 << 60)
        assert done
        node.journal.clear()
        self._records = records

    def kill(self) -> None:
        """Let the node die, after its notes have been written."""
        self.bench.node.commit()
        self.bench.now += 1
        self.bench.node.tick(self.bench.now)
        self.bench.node.replied()

    def stop(self) -> None:
        """Let the node stop."""
        node = self.bench.node
        node.commit()
        jobs = node.store.jobs.values()
        records = [*node.progress.records_of(list(jobs)), *node.store.outcomes.records()]
        self.progress[:] = [MAGIC, pack_block([*records, pack_stopped(0)])]

    def start(self, bench: Bench, complete: bool = True, at_once: bool = False) -> Bench:
        """Let ``bench``, a new node, load the files and keep them."""
        records = self.records
        node = bench.node
        node.now = bench.now
        found = ProgressReader()
        found.read(BytesIO(b"".join(self.progress)))
        node.recovery.begin(found, complete, at_once)
        for record in RecordReader(BytesIO(b"".join(records))):
            if any(id in record[1] for id in self.damaged):
                node.load_suspect(record)
            else:
                node.load_record(record, at_once)
        node.recovery.finish()
        node.journal.clear()
        self.bench = bench
        self._keep()
        return bench


def restarted(bench: Bench, files: Files, seconds: float = 1) -> Bench:
    """The node of ``bench``, started again ``seconds`` later."""
    new = Bench(7, id=bench.node.id, peers=bench.node.peers, jitter=0)
    new.now = bench.now + round(seconds * 1000)
    return files.start(new)


def restart_in(mesh: Mesh, index: int, files: Files) -> Bench:
    """The node ``index`` of ``mesh``, started again."""
    old = mesh.nodes[index]
    new = mesh.nodes[index] = Bench(7, id=old.node.id, peers=mesh.peers[index], jitter=0)
    new.now = mesh.nodes[index - 1].now
    return files.start(new)


def waits(bench: Bench, id: bytes) -> float:
    """Return in how many seconds the job is queued."""
    return int(str(bench.show(id)[b"next-requeue-within"])) / 1000


End = Callable[[Files], None]
ends = pytest.mark.parametrize("end", [Files.kill, Files.stop])
"""For tests of both ways in which a node can end."""
