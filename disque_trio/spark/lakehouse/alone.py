"""Sees to it that one compaction at a time works on a table."""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from disque_trio.spark.files import Location
from disque_trio.spark.lakehouse.settings import TableError

STALE_SECONDS = 600.0  # after which a lock is of somebody who has died
_BEAT_SECONDS = 30.0
_LOCK = "lock"


@contextmanager
def alone(directory: Location, clock: Callable[[], float] = time.time) -> Iterator[None]:
    """A block that nobody else is in.

    On this machine a lock of the file, which ends with the process, sees to it. Elsewhere it is a
    file that is made if nobody has it, and written anew every half minute: one that is older than
    ten minutes counts no more. So clocks must agree to some minutes, and who halts for longer than
    that, and goes on, may not be alone.

    Args:
        directory: for the lock. clock: seconds since 1970.

    Raises:
        TableError: somebody is.
    """
    here = directory.local
    with _locked(here) if here is not None else _claimed(directory, clock):
        yield


def _busy(directory: Location | Path) -> TableError:
    return TableError(f"{directory.parent}: another compaction is at work")


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
    # Who takes the place of a dead one takes the next number: of several, one gets it.
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
            continue  # the next one may come through
