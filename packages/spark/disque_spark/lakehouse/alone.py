"""Makes sure that only one compaction at a time works on a table."""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from disque_spark.files import Location
from disque_spark.lakehouse.settings import TableError

STALE_SECONDS = 600.0  # after this time, the owner of a lock has died
_BEAT_SECONDS = 30.0
_LOCK = "lock"


@contextmanager
def alone(directory: Location, clock: Callable[[], float] = time.time) -> Iterator[None]:
    """Hold a lock during the block.

    On local file systems, this is a file lock, which ends with the process. Elsewhere it is a file
    that only one process can create, and that it rewrites every half minute; after ten minutes
    without that, the lock is void. So clocks have to agree within some minutes, and a process that
    is suspended for longer may lose its lock.

    Args:
        directory: directory for the lock.
        clock: returns seconds since 1970.

    Raises:
        TableError: another process holds the lock.
    """
    here = directory.local
    with _locked(here) if here is not None else _claimed(directory, clock):
        yield


def _busy(directory: Location | Path) -> TableError:
    return TableError(f"{directory.parent}: another compaction is running")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.mkdir(exist_ok=True)
    with (directory / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy(directory) from None
        yield


@contextmanager
def _claimed(directory: Location, clock: Callable[[], float]) -> Iterator[None]:
    directory.make_directory()
    # To replace the lock of a dead process, create one with the next number: only one can.
    ages = {}
    for file, written in _ages(directory):
        head, _, number = file.name.partition(".")
        if head == _LOCK and number.isdecimal():
            ages[int(number)] = (file, written)
    last = max(ages, default=0)
    if ages and clock() - ages[last][1] < STALE_SECONDS:
        raise _busy(directory)
    own = directory / f"{_LOCK}.{last + 1}"
    if not own.put_new(b"\n"):
        raise _busy(directory)
    over = Event()
    beating = Thread(target=_beat, args=(own, over), daemon=True)
    beating.start()
    try:
        for file, _ in ages.values():
            file.delete()
        yield
    finally:
        over.set()
        beating.join()
        own.delete()


def _ages(directory: Location) -> list[tuple[Location, float]]:
    try:
        return directory.ages()
    except FileNotFoundError:
        return []


def _beat(own: Location, over: Event) -> None:
    while not over.wait(_BEAT_SECONDS):
        try:
            own.write_bytes(b"\n")
        except OSError:
            continue  # the next attempt may succeed
