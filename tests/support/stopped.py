"""What a node leaves when it stops, and nodes that start with it: with its index, or without."""

from collections import deque
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any

from disque_trio.aof.format import RecordReader
from disque_trio.cluster.peers import Peers
from disque_trio.node.core.node import Node
from disque_trio.node.core.queues.start_index import RECORDS, Block, StartIndex, read_blocks
from disque_trio.protocol.progress import (
    MAGIC,
    ProgressReader,
    Run,
    pack_block,
    pack_run,
    pack_stopped,
)
from tests.support.paged import PagedBench
from tests.support.policies import set_policy

DIGEST = b"d" * 32  # of the append-only file


def progress_records(node: Node, stopped: bool) -> list[list[bytes]]:
    """What the progress file of ``node`` says, in parts; ``stopped``: no turn follows, and orders
    are carried out at once."""
    if stopped:
        node.paging.look_again()
    while True:
        before = node.paging.rebuilds
        jobs = [list(shard.values()) for shard in filter(None, node.store.jobs.shards)]
        jobs += [node.aof_codec.jobs_in(number)[0] for number in node.aof_codec.moved_segments()]
        if not stopped or node.paging.rebuilds == before:
            break
    records = [node.progress.records_of(some) for some in jobs]
    return list(filter(None, [*records, node.store.outcomes.records()]))


def progress_of(node: Node, size: int) -> bytes:
    """The progress file of ``node``, which has stopped with an append-only file of this ``size``;
    negative: it has not."""
    records = [pack_run(Run(b"", True))]
    for some in progress_records(node, size >= 0):
        records += some
    if size >= 0:
        records.append(pack_stopped(size))
    return MAGIC + pack_block(records)


def index_of(node: Node) -> StartIndex:
    """What makes and takes the index of ``node``."""
    return StartIndex(node.store, node.paging, node.aof_codec, node.recovery)


def load_blocks(node: Node, index: StartIndex, blocks: Iterable[Block], queue_jobs: bool) -> None:
    """Have ``node`` load the ``blocks`` of an index that was checked."""
    for kind, content in blocks:
        if kind == RECORDS:
            for record in RecordReader(BytesIO(content)):
                node.load_record(record, queue_jobs)
        else:
            index.take(kind, content)


class Stopped:
    """The files of ``bench``, which has stopped.

    Attributes:
        aof, progress, files, index: what is in them.
    """

    def __init__(self, bench: PagedBench) -> None:
        node = bench.node
        self.aof = b"".join(node.journal)
        self.progress = progress_of(node, len(self.aof))
        self.files = dict(bench.files)
        node.now = bench.now
        maker = index_of(node)
        self.index = b"".join(maker.pack(len(self.aof), DIGEST, bench.now))
        for segment in maker.kept():
            if segment.data is not None:
                self.files[segment.number] = segment.data
        self._id = node.id
        self._now = bench.now

    def started(
        self,
        with_index: bool,
        peers: Peers | None = None,
        later: int = 0,
        at_once: bool = False,
        policies: Mapping[str, Any] | None = None,
    ) -> PagedBench:
        """A node that has started, ``later`` by so many ms, among ``peers``. ``policies``: of the
        queue "q"."""
        bench = PagedBench(seed=7, id=self._id, jitter=0, above=1, peers=peers)
        bench.pages.seed = 54321  # each process draws another one
        bench.files.update(self.files)
        bench.orders = deque()
        bench.pages.perform = bench.orders.extend
        bench.now = bench.node.now = self._now + later
        node = bench.node
        if policies:
            set_policy(bench, **policies)
        found = ProgressReader()
        found.read(BytesIO(self.progress))
        node.recovery.begin(found, True, at_once)
        if with_index:
            self.take(bench)
        else:
            for record in RecordReader(BytesIO(self.aof)):
                node.load_record(record, False)
        node.recovery.finish()
        node.journaling = True
        node.journal += [self.aof]
        bench.settle()
        return bench

    def take(self, bench: PagedBench) -> None:
        """Have ``bench`` load the index."""
        node = bench.node
        index = index_of(node)
        blocks = list(read_blocks(BytesIO(self.index).read))
        index.check(blocks, len(self.aof), lambda: DIGEST, lambda segment: "")
        load_blocks(node, index, blocks, False)
