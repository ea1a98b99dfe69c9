"""The index of the jobs on disk that a node leaves in ``page-dir`` when it stops (see
``node.core.queues.start_index``), for the next start.

It is written under another name, synced and renamed, so it is there as a whole or not at all. The
page files are not synced for it: after a loss of power, those that are missing or too short are
noticed at once, and all others when they are read; the append-only file has their jobs. It is
removed as soon as it was used, before anything that it tells of changes.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from time import process_time
from typing import Final

from disque_trio.aof.format import RecordReader
from disque_trio.aof.loader import RECORDS_A_STEP
from disque_trio.config import Config
from disque_trio.disk import sync_directory
from disque_trio.node.core.node import Node
from disque_trio.node.core.pages.segment import DamagedError, Segment
from disque_trio.node.core.queues.start_index import (
    RECORDS,
    StartIndex,
    StartIndexError,
    read_blocks,
)
from disque_trio.node.page_files import PageFiles
from disque_trio.node.progress_file import ProgressFile
from disque_trio.process.logs import Log

NAME: Final = "aof.index"
SAMPLES: Final = 64  # places of the append-only file that have to be as they were
SAMPLE: Final = 4096  # bytes of each
ENDS: Final = 16  # times as many at the beginning and the end
PIECE: Final = 1 << 20  # bytes of the progress file at a time
BLOCKS_A_STEP: Final = 4  # of at most a megabyte


class IndexFile:
    """Keeps the index of ``node`` while that is down.

    Args:
        config: says where the append-only file is.
        pages: writes the page files, and removes them.
        progress: the progress file, which has to be written before, and read before.

    Attributes:
        begin: where the next load of the append-only file has to begin.
        used: the last start used an index.
        started: the node has all jobs, so that it may write one.
    """

    def __init__(
        self, node: Node, config: Config, pages: PageFiles, progress: ProgressFile, log: Log
    ) -> None:
        self.begin = 0
        self.used = self.started = False
        self.index = StartIndex(node.store, node.paging, node.aof_codec, node.recovery)
        self._node = node
        self._config = config
        self._pages = pages
        self._progress = progress
        self._log = log

    @property
    def path(self) -> Path:
        """Its path."""
        return self._pages.directory / NAME

    def _identity(self) -> tuple[int, bytes]:
        """The size of the append-only file, and a digest of parts of it, and of the progress file:
        no others are the same, as the ids in them are random. Raises ``OSError``."""
        digest = hashlib.blake2b(digest_size=32)
        with Path(self._progress.path).open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
        with Path(self._config.appendfilename).open("rb", buffering=0) as file:
            fd = file.fileno()
            size = os.fstat(fd).st_size
            ends = ENDS * SAMPLE
            digest.update(os.pread(fd, ends, 0))
            for number in range(1, SAMPLES):
                digest.update(os.pread(fd, SAMPLE, size * number // SAMPLES))
            digest.update(os.pread(fd, ends, max(size - ends, 0)))
        return size, digest.digest()

    # ---- stop -------------------------------------------------------------------------------

    def is_worth_it(self) -> bool:
        """Whether to leave an index rather than have the next start read all jobs."""
        config = self._config
        return config.appendonly and config.requeue_at_start and self.index.is_worth_it()

    def write(self, when: int) -> None:
        """Write it after everything else, at ``when`` (ms), if it is worth it: nothing may change
        any more."""
        if not (self.started and self.is_worth_it()):
            return
        temporary = self.path.with_suffix(".tmp")
        started = process_time()
        try:
            self._pages.finish(self.index.kept())
            with temporary.open("wb") as file:
                size, digest = self._identity()
                for piece in self.index.pack(size, digest, when):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
                bytes_written = file.tell()
            temporary.replace(self.path)
            sync_directory(self.path.parent)
        except OSError as problem:
            self.remove()
            with suppress(OSError):
                temporary.unlink()
            self._log.warning(
                "the index of the jobs on disk cannot be written: the next start reads all jobs",
                reason=problem.strerror or str(problem),
            )
            return
        self._log.notice(
            "the index of the jobs on disk was written",
            bytes=bytes_written,
            cpu_ms=round(1000 * (process_time() - started)),
        )

    # ---- start ------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Find out whether there is an index that can be used; remove all files that it does not
        tell of. Call it once the progress file was read."""
        self.begin = 0
        numbers: list[int] = []
        try:
            numbers = self._check()
        except FileNotFoundError:
            pass
        except (OSError, StartIndexError) as problem:
            reason = (problem.strerror if isinstance(problem, OSError) else "") or str(problem)
            self._log.warning(
                "the index of the jobs on disk cannot be used: the append-only file is read",
                file=str(self.path),
                reason=reason,
            )
        if not self.begin:
            self.remove()
        self._pages.prepare(set(numbers))

    def _check(self) -> list[int]:
        """See ``StartIndex.check``. Raises ``OSError``, ``StartIndexError``."""
        with self.path.open("rb") as file:
            size = os.stat(self._config.appendfilename).st_size
            blocks = read_blocks(file.read)
            numbers = self.index.check(blocks, size, lambda: self._identity()[1], self._problem_of)
        self.begin = size
        return numbers

    def _problem_of(self, segment: Segment) -> str:
        """What is wrong with the file of ``segment``, as far as its size and first record tell;
        empty: nothing."""
        try:
            fd = os.open(self._pages.path(segment.number), os.O_RDONLY | os.O_CLOEXEC)
            try:
                if os.fstat(fd).st_size != segment.file_size:
                    return "it has another size"
                place = segment.places()[0]
                parts = [os.pread(fd, end - at, at) for at, end in segment.parts(place)]
                segment.read_part(b"".join(parts), place)
            finally:
                os.close(fd)
        except OSError as problem:
            return problem.strerror or str(problem)
        except DamagedError as problem:
            return str(problem)
        return ""

    def steps(self, queue_jobs: bool) -> Iterator[None]:
        """Load what the index tells, if it can be used; yields now and then. ``queue_jobs``: see
        ``Dataset.load_record``."""
        if not self.begin:
            return
        node = self._node
        now = node.now
        with self.path.open("rb") as file:
            for number, (kind, content) in enumerate(read_blocks(file.read)):
                if kind == RECORDS:
                    yield from self._load(content, queue_jobs)
                else:
                    self.index.take(kind, content)
                if number % BLOCKS_A_STEP == 0:
                    yield
                node.now = now  # requests served meanwhile may have changed it

    def _load(self, records: bytes, queue_jobs: bool) -> Iterator[None]:
        """Load ``records``, as those of the append-only file."""
        node = self._node
        reader = RecordReader(BytesIO(records))
        while True:
            at, count, _ = node.load_usual(reader.buffer, reader.at, RECORDS_A_STEP, queue_jobs)
            reader.skip_to(at)
            if count == RECORDS_A_STEP:
                yield
                continue
            record = next(reader, None)
            if record is None:
                return
            node.load_record(record, queue_jobs)

    def loaded(self) -> None:
        """Remove it: what it tells of changes now."""
        self.used = self.begin > 0
        if self.used:
            pages = self._node.paging.pages
            self._log.notice(
                "started with the index of the jobs on disk: these were not read",
                jobs=pages.jobs,
                segments=len(pages.segments),
            )
        self.remove()

    def info(self) -> dict[str, str | int | float]:
        """Fields of INFO persistence."""
        return {"aof_last_load_index": int(self.used)}

    def remove(self) -> None:
        """Remove it."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
