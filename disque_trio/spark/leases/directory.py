"""The lease directory: which jobs were taken for which batch, kept until the batch is over.

Owns its layout and the files in it; knows no node and no Spark. Each batch is a directory

    batch-00000000000000000007/plan.json     who takes how many from where, written first
                               0.arrow       the jobs that partition 0 of the plan has fetched
                             0.read        a task has begun to give them to Spark
    done-00000000000000000006/               over, to be acknowledged; empty when that is done

A batch appears by a rename with its plan in it, and a lease in it by a link when it is complete and
on the disk, so that of several attempts at a partition the first one wins and everyone reads the
same. A batch that is over is renamed before its jobs are acknowledged: whoever is late can put
nothing into it any more. The last that was done stays, empty, for its number never to be used
again.
"""

import errno
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import pyarrow as pa

from disque_trio.disk import sync_directory, sync_file
from disque_trio.spark.leases.store import LOCK_SECONDS, Lease, LeaseError, PartitionPlan

PLAN = "plan.json"
_BATCH = "batch-"
_DONE = "done-"
_READ = ".read"
_NO_LOCKS = (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK)  # of file systems that have none


class DirectoryPlace(NamedTuple):
    """A lease directory, as a ``LeasePlace``."""

    directory: Path

    def open(self, seconds: float = LOCK_SECONDS) -> "LeaseLog":
        """See ``LeaseLog``."""
        return LeaseLog(self.directory, seconds)

    def watch(self) -> "LeaseLog":
        """Made and usable, and not locked."""
        log = LeaseLog(self.directory)
        log.close()
        return log

    def batch(self, number: int, owner: str, address: str) -> "DirectoryBatch":
        """A batch of it; it does not matter who planned it and where its jobs come from."""
        return DirectoryBatch(batch_path(self.directory, number))


class DirectoryBatch(NamedTuple):
    """The directory of a batch, as a ``TaskBatch``."""

    path: Path

    def jobs(self, number: int) -> list[pa.RecordBatch] | None:
        """See ``leased_jobs``."""
        return leased_jobs(self.path, number)

    def draft(self, schema: pa.Schema) -> "LeaseFile":
        """See ``LeaseFile``."""
        return LeaseFile(self.path, schema)

    def mark_read(self, number: int) -> None:
        """See ``TaskBatch``."""
        try:
            (self.path / f"{number}{_READ}").touch()
        except FileNotFoundError:
            pass

    def leased(self) -> set[str]:
        """See ``leased_in``."""
        return leased_in(self.path)

    def close(self) -> None:
        """Nothing is open."""


class LeaseFile:
    """A lease under construction: a file that nobody sees before ``publish``.

    Args:
        batch: the directory of the batch.
        schema: of the jobs; the first column holds their ids.

    Raises:
        LeaseError: there is no such batch here.
    """

    def __init__(self, batch: Path, schema: pa.Schema) -> None:
        self._batch = batch
        self._path = batch / f".{uuid.uuid4().hex}.tmp"
        try:
            self._file = self._path.open("xb")
        except FileNotFoundError:
            raise LeaseError(
                f"{batch} is not there: the lease directory has to be one that the driver and all"
                " executors share (or this attempt at the task comes too late)"
            ) from None
        self._writer = pa.ipc.new_stream(self._file, schema)

    def append(self, jobs: pa.RecordBatch) -> None:
        """Add jobs behind those that are there."""
        self._writer.write_batch(jobs)

    def publish(self, number: int) -> bool:
        """Make it the lease of partition ``number``: on the disk, whole, and never to change. Jobs
        that another lease of the batch has, since two nodes delivered them, are left out. False if
        another attempt was first, or the batch is over."""
        self._finish_file()
        try:
            with _one_at_a_time(self._batch):
                self._leave_out(leased_in(self._batch))
                os.link(self._path, self._batch / f"{number}.arrow")
            sync_directory(self._batch)
        except (FileExistsError, FileNotFoundError):
            return False
        finally:
            self.close()
        return True

    def _finish_file(self) -> None:
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())

    def _leave_out(self, leased: set[str]) -> None:
        """Write the file anew if it has jobs that are ``leased`` already."""
        if leased.isdisjoint(_ids_in(self._path)):
            return
        path = self._path
        self._file.close()
        self._path = path.with_name(f".{uuid.uuid4().hex}.tmp")
        self._file = self._path.open("xb")
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            self._writer = pa.ipc.new_stream(self._file, stream.schema)
            for jobs in stream:
                new = [id not in leased for id in jobs.column(0).to_pylist()]
                if any(new):
                    self._writer.write_batch(jobs.filter(pa.array(new)))
        path.unlink()
        self._finish_file()

    def close(self) -> None:
        """Remove what is not published."""
        try:
            self._file.close()
        except OSError:
            pass  # a full disk: what it could not keep nobody wants any more
        self._path.unlink(missing_ok=True)


class LeaseLog:
    """The lease directory as seen by the one process that plans and ends batches.

    It is locked while this object is open: two queries in one directory would acknowledge each
    other's jobs.

    Args:
        directory: is made if it is not there.
        seconds: how long to wait for the lock; the process of a killed query needs a moment to end.

    Attributes:
        name: its path.
        identity: of the directory; not that of another one at the same path.
        owner: nobody: it is locked.

    Raises:
        LeaseError: it is in use, or cannot be made.
    """

    def __init__(self, directory: Path, seconds: float = LOCK_SECONDS) -> None:
        self.directory = directory
        self.name = str(directory)
        self.owner = ""
        self._lock: int | None = None
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as problem:
            raise LeaseError(f"{directory}: {problem}") from problem
        try:
            self._take_lock(self._lock, seconds)
            self.identity = self._identity()
        except BaseException:
            self.close()
            raise
        for leftover in directory.glob(".new-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def take_over(self) -> None:
        """Who had it before does not have the lock any more."""

    def open_batches(self) -> list[int]:
        """The numbers of the batches that are not over, lowest first."""
        return self._numbers(_BATCH)

    def highest(self) -> int:
        """The highest number that any batch had; 0 if there was none."""
        return max([*self._numbers(_BATCH), *self._numbers(_DONE)], default=0)

    def highest_done(self) -> int:
        """The highest number of a batch that is over; 0 if there was none."""
        return max(self._numbers(_DONE), default=0)

    def begin(
        self, number: int, plans: Sequence[PartitionPlan], first: pa.RecordBatch | None
    ) -> None:
        """Make a batch. ``first`` are jobs that were fetched already, for partition 0."""
        new = self.directory / f".new-{uuid.uuid4().hex}"
        new.mkdir()
        if first is not None:
            lease = LeaseFile(new, first.schema)
            lease.append(first)
            lease.publish(0)
        (new / PLAN).write_text(json.dumps({"shares": plans}))
        sync_file(new / PLAN)
        sync_directory(new)
        new.rename(batch_path(self.directory, number))
        sync_directory(self.directory)

    def plans(self, number: int) -> list[PartitionPlan] | None:
        """The partitions of a batch that is not over; None if it is not here."""
        return read_plan(batch_path(self.directory, number))

    def nodes(self, number: int) -> list[str]:
        """The addresses that the plan of a batch names, which is open or to be acknowledged."""
        return [plan.address for plan in read_plan(self._path(number)) or []]

    def leases(self, number: int) -> list[Lease]:
        """The leases that have jobs, of a batch that is open or to be acknowledged."""
        batch = self._path(number)
        found = [
            Lease(n, plan.address, leased_ids(batch, n), _was_read(batch, n), plan.elsewhere)
            for n, plan in enumerate(read_plan(batch) or [])
        ]
        return [lease for lease in found if lease.ids]

    def finish(self, number: int) -> None:
        """The batch is over: no lease can be added to it any more."""
        batch_path(self.directory, number).rename(self.directory / f"{_DONE}{number:020}")
        sync_directory(self.directory)

    def forget_reads(self) -> None:
        """What was read of open batches, another query has read."""
        for number in self.open_batches():
            for path in batch_path(self.directory, number).glob(f"*{_READ}"):
                path.unlink(missing_ok=True)

    def to_acknowledge(self) -> list[int]:
        """The batches that are over and not yet cleared."""
        return [n for n in self._numbers(_DONE) if self.done_path(n).joinpath(PLAN).exists()]

    def done_path(self, number: int) -> Path:
        """Where the leases of a batch are that is over."""
        return self.directory / f"{_DONE}{number:020}"

    def clear(self, number: int) -> None:
        """All jobs of the batch that is over are acknowledged: forget them."""
        done = self.done_path(number)
        plan = done / PLAN
        for path in done.iterdir():
            if path != plan:
                path.unlink(missing_ok=True)
        plan.unlink()  # last: with it gone nobody asks for the leases
        for older in self._numbers(_DONE):
            if older < number and not self.done_path(older).joinpath(PLAN).exists():
                shutil.rmtree(self.done_path(older), ignore_errors=True)

    def close(self) -> None:
        """Let others use the directory. Again: nothing."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _take_lock(self, lock: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise LeaseError(
                        f"{self.directory} is in use by another query: each needs a lease"
                        " directory of its own"
                    ) from None
                time.sleep(0.05)
            except OSError as problem:
                if problem.errno in _NO_LOCKS:
                    return  # a file system without locks: it is up to the user then
                raise
            else:
                return

    def _path(self, number: int) -> Path:
        """Where a batch is."""
        batch = batch_path(self.directory, number)
        return batch if batch.exists() else self.done_path(number)

    def _identity(self) -> str:
        path = self.directory / "identity"
        if not path.exists():
            new = self.directory / f".identity-{uuid.uuid4().hex}"
            new.write_text(uuid.uuid4().hex)
            sync_file(new)
            new.rename(path)
            sync_directory(self.directory)
        return path.read_text()

    def _numbers(self, prefix: str) -> list[int]:
        names = [path.name[len(prefix) :] for path in self.directory.glob(prefix + "*")]
        return sorted(int(name) for name in names if name.isdecimal())


def batch_path(directory: Path, number: int) -> Path:
    """The directory of a batch that is not over."""
    return directory / f"{_BATCH}{number:020}"


def read_plan(batch: Path) -> list[PartitionPlan] | None:
    """The partitions of a batch; None if it is not here."""
    try:
        text = (batch / PLAN).read_text()
    except FileNotFoundError:
        return None
    return [PartitionPlan(*plan) for plan in json.loads(text)["shares"]]


def leased_jobs(batch: Path, number: int) -> list[pa.RecordBatch] | None:
    """The jobs of a partition's lease; None if it has none yet. They stay readable when the file is
    removed."""
    try:
        with pa.memory_map(str(batch / f"{number}.arrow")) as source:
            return list(pa.ipc.open_stream(source))
    except FileNotFoundError:
        return None


def _was_read(batch: Path, number: int) -> bool:
    return (batch / f"{number}{_READ}").exists()


def leased_ids(batch: Path, number: int) -> list[str]:
    """The ids in a partition's lease; none if it has none yet."""
    try:
        return _ids_in(batch / f"{number}.arrow")
    except FileNotFoundError:
        return []


def leased_in(batch: Path) -> set[str]:
    """The ids in all leases of a batch that there are."""
    return {id for path in batch.glob("*.arrow") for id in _ids_in(path)}


def _ids_in(lease: Path) -> list[str]:
    with pa.memory_map(str(lease)) as source:
        only_ids = pa.ipc.IpcReadOptions(included_fields=[0])
        ids: list[str] = []
        for jobs in pa.ipc.open_stream(source, options=only_ids):
            ids += jobs.column(0).to_pylist()
        return ids


@contextmanager
def _one_at_a_time(batch: Path) -> Iterator[None]:
    """A block that one task of a batch enters after the other. Without a plan nobody knows of the
    batch yet, or any more."""
    try:
        plan = (batch / PLAN).open("r+b")
    except FileNotFoundError:
        yield
        return
    with plan:
        try:
            fcntl.flock(plan, fcntl.LOCK_EX)
        except OSError as problem:
            if problem.errno not in _NO_LOCKS:
                raise
        yield
