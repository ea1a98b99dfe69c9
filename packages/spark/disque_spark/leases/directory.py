"""The lease directory: stores which jobs were taken for which batch, until the batch is finished.

Knows neither nodes nor Spark. Each batch is a directory:

    batch-00000000000000000007/plan.json     the plans of the partitions, written first
                               0.arrow       the jobs that partition 0 of the plan has fetched
                               0.read        a task has begun to pass them to Spark
    done-00000000000000000006/               finished, to be acknowledged; empty when that is done

A batch appears by a rename, with its plan in it. A lease appears in it by a hard link, when it is
complete and synced, so that of several attempts at a partition the first one wins, and all read the
same jobs. A finished batch is renamed before its jobs are acknowledged, so that late attempts
cannot add leases. The last finished batch stays, empty, so that its number is never used again.
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

from disque_spark.leases.store import LOCK_SECONDS, Lease, LeaseError, PartitionPlan
from disque_trio.disk import sync_directory, sync_file

PLAN = "plan.json"
_BATCH = "batch-"
_DONE = "done-"
_READ = ".read"
_NO_LOCKS = (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK)  # from file systems without locks


class DirectoryPlace(NamedTuple):
    """A lease directory, as a ``LeasePlace``."""

    directory: Path

    def open(self, seconds: float = LOCK_SECONDS) -> "LeaseLog":
        """See ``LeaseLog``."""
        return LeaseLog(self.directory, seconds)

    def watch(self) -> "LeaseLog":
        """Create it if necessary, but do not keep it locked."""
        log = LeaseLog(self.directory)
        log.close()
        return log

    def batch(self, number: int, owner: str, address: str) -> "DirectoryBatch":
        """A batch; its owner and the address of the node do not matter."""
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
        """Do nothing: nothing is open."""


class LeaseFile:
    """A lease under construction: a file that is invisible to others before ``publish``.

    Args:
        batch: directory of the batch.
        schema: schema of the jobs, whose first column has their ids.

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
                f"{batch} does not exist: the driver and all executors have to share the lease"
                " directory (or this attempt of the task is too late)"
            ) from None
        self._writer = pa.ipc.new_stream(self._file, schema)

    def append(self, jobs: pa.RecordBatch) -> None:
        """See ``LeaseDraft``."""
        self._writer.write_batch(jobs)

    def publish(self, number: int) -> bool:
        """See ``LeaseDraft``. Syncs the file to disk."""
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
        """Rewrite the file without jobs that are already ``leased``."""
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
        """See ``LeaseDraft``."""
        try:
            self._file.close()
        except OSError:
            pass  # the disk may be full, but nobody needs the file any more
        self._path.unlink(missing_ok=True)


class LeaseLog:
    """The lease directory, as a ``LeaseStore``.

    Args:
        directory: the directory; created if necessary.
        seconds: how long to wait for the lock; the process of a killed query needs a moment to end.

    Attributes:
        name: its path.
        identity: id of the directory; differs from those of other directories at the same path.
        owner: always empty: the lock is enough.

    Raises:
        LeaseError: it is in use, or cannot be created.
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
        """Do nothing: the previous owner has lost the lock."""

    def open_batches(self) -> list[int]:
        """See ``LeaseStore``."""
        return self._numbers(_BATCH)

    def highest(self) -> int:
        """See ``LeaseStore``."""
        return max([*self._numbers(_BATCH), *self._numbers(_DONE)], default=0)

    def highest_done(self) -> int:
        """See ``LeaseStore``."""
        return max(self._numbers(_DONE), default=0)

    def begin(
        self, number: int, plans: Sequence[PartitionPlan], first: pa.RecordBatch | None
    ) -> None:
        """See ``LeaseStore``."""
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
        """See ``LeaseStore``."""
        return read_plan(batch_path(self.directory, number))

    def nodes(self, number: int) -> list[str]:
        """See ``LeaseStore``."""
        return [plan.address for plan in read_plan(self._path(number)) or []]

    def leases(self, number: int) -> list[Lease]:
        """See ``LeaseStore``."""
        batch = self._path(number)
        found = [
            Lease(n, plan.address, leased_ids(batch, n), _was_read(batch, n), plan.elsewhere)
            for n, plan in enumerate(read_plan(batch) or [])
        ]
        return [lease for lease in found if lease.ids]

    def finish(self, number: int) -> None:
        """See ``LeaseStore``."""
        batch_path(self.directory, number).rename(self.directory / f"{_DONE}{number:020}")
        sync_directory(self.directory)

    def forget_reads(self) -> None:
        """See ``LeaseStore``."""
        for number in self.open_batches():
            for path in batch_path(self.directory, number).glob(f"*{_READ}"):
                path.unlink(missing_ok=True)

    def to_acknowledge(self) -> list[int]:
        """See ``LeaseStore``."""
        return [n for n in self._numbers(_DONE) if self.done_path(n).joinpath(PLAN).exists()]

    def done_path(self, number: int) -> Path:
        """The directory of a finished batch."""
        return self.directory / f"{_DONE}{number:020}"

    def clear(self, number: int) -> None:
        """See ``LeaseStore``."""
        done = self.done_path(number)
        plan = done / PLAN
        for path in done.iterdir():
            if path != plan:
                path.unlink(missing_ok=True)
        plan.unlink()  # last: without it, nobody asks for the leases
        for older in self._numbers(_DONE):
            if older < number and not self.done_path(older).joinpath(PLAN).exists():
                shutil.rmtree(self.done_path(older), ignore_errors=True)

    def close(self) -> None:
        """See ``LeaseStore``."""
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
                        f"{self.directory} is in use by another query; each query needs its own"
                        " lease directory"
                    ) from None
                time.sleep(0.05)
            except OSError as problem:
                if problem.errno in _NO_LOCKS:
                    return  # a file system without locks: users have to take care themselves
                raise
            else:
                return

    def _path(self, number: int) -> Path:
        """The directory of a batch, open or finished."""
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
    """The directory of an open batch."""
    return directory / f"{_BATCH}{number:020}"


def read_plan(batch: Path) -> list[PartitionPlan] | None:
    """The partitions of a batch; None if there is no such batch."""
    try:
        text = (batch / PLAN).read_text()
    except FileNotFoundError:
        return None
    return [PartitionPlan(*plan) for plan in json.loads(text)["shares"]]


def leased_jobs(batch: Path, number: int) -> list[pa.RecordBatch] | None:
    """The jobs of a partition's lease; None if there is no lease yet. They stay readable when the
    file is removed."""
    try:
        with pa.memory_map(str(batch / f"{number}.arrow")) as source:
            return list(pa.ipc.open_stream(source))
    except FileNotFoundError:
        return None


def _was_read(batch: Path, number: int) -> bool:
    return (batch / f"{number}{_READ}").exists()


def leased_ids(batch: Path, number: int) -> list[str]:
    """The ids in a partition's lease; empty if there is no lease yet."""
    try:
        return _ids_in(batch / f"{number}.arrow")
    except FileNotFoundError:
        return []


def leased_in(batch: Path) -> set[str]:
    """The ids in all existing leases of a batch."""
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
    """Let one task of a batch at a time enter the block. Without a plan, the batch is not yet or no
    longer known to others, and there is no lock."""
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
