"""The index that a machine leaves when it stops, and what its next start finds: that index, none,
half of it, that of an earlier stop, or one without some of its files."""

from hashlib import blake2b
from io import BytesIO
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from disque_trio.node.core.node import Node
from disque_trio.node.core.pages.segment import DamagedError, Segment
from disque_trio.node.core.queues.start_index import StartIndexError, read_blocks
from tests.simulator.disk import Disk
from tests.support.stopped import index_of, load_blocks

if TYPE_CHECKING:
    from tests.simulator.pages import PageFiles

FOUND = ("all", "all", "all", "none", "torn", "yesterday", "files")


class Left(NamedTuple):
    """What a process has left: its index, the page files, and what should be in them."""

    data: bytes
    files: dict[int, bytes]
    written: dict[int, bytes]


class IndexFile:
    """The index of one machine, whose files are on ``disk``.

    Attributes:
        used: how often a start has used it.
    """

    def __init__(self, disk: Disk, rng: Random) -> None:
        self.used = 0
        self._disk = disk
        self._rng = rng
        self._left: Left | None = None
        self._earlier: list[Left] = []

    def leave(self, node: Node, pages: "PageFiles", now: int) -> None:
        """Write the index of ``node``, which has stopped."""
        self._left = None
        index = index_of(node)
        kept = index.kept()
        if not kept or any(one.rebuilding for one in node.paging.pages.segments.values()):
            return
        node.now = now
        try:
            data = b"".join(index.pack(len(self._disk.records), self._digest(), now))
        except OSError:  # a damaged file; then the node leaves no index either
            return
        for segment in kept:
            if segment.data is not None:
                pages.files[segment.number] = pages.written[segment.number] = segment.data
        self._left = Left(data, dict(pages.files), dict(pages.written))

    def load(self, node: Node, pages: "PageFiles", queue_jobs: bool) -> bool:
        """Load what the start finds into ``node``, if it can be used; return whether it could."""
        left, self._left = self._left, None
        what = self._rng.choice(FOUND)
        if left is not None:
            self._earlier.append(left)
        if what == "yesterday" and len(self._earlier) > 1:
            left = self._rng.choice(self._earlier[:-1])
        if left is None or what == "none":
            return False
        data = left.data
        if what == "torn":
            data = data[: self._rng.randrange(len(data))]
        if what != "files":
            pages.files = dict(left.files)
        index = index_of(node)

        def problem_of(segment: Segment) -> str:
            file = pages.files.get(segment.number, b"")
            if len(file) != segment.file_size:
                return "it has another size"
            place = segment.places()[0]
            try:
                segment.read(file, place)
            except DamagedError as problem:
                return str(problem)
            return ""

        try:
            blocks = list(read_blocks(BytesIO(data).read))
            numbers = index.check(blocks, len(self._disk.records), self._digest, problem_of)
        except StartIndexError:
            return False
        self.used += 1
        pages.files = {number: pages.files[number] for number in numbers}
        pages.written = {number: left.written[number] for number in numbers}
        load_blocks(node, index, blocks, queue_jobs)
        return True

    def _digest(self) -> bytes:
        files = b"".join([*self._disk.records, *self._disk.progress])
        return blake2b(files, digest_size=32).digest()
