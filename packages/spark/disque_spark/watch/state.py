"""The state that a watch stores between runs: what each receiver was told."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

from disque_spark.audit.store import StoreError
from disque_spark.files import Location
from disque_spark.watch.notices import Told

STATE = "watch.json"
_LOCK = ".watch.lock"


class WatchState:
    """What the receivers of a watch know, by their keys.

    Args:
        output: directory of the tables.

    Raises:
        StoreError: the file is not the state of a watch.
    """

    def __init__(self, output: Location) -> None:
        self._file = output / STATE
        self._kept = b""
        self.told: dict[str, Told] = {}
        try:
            self._kept = self._file.read_bytes()
            self.told = {key: Told.of(told) for key, told in json.loads(self._kept).items()}
        except FileNotFoundError:
            pass
        except (ValueError, AttributeError) as problem:
            raise StoreError(f"{self._file}: {problem}") from None

    def save(self) -> None:
        """Write the state, if it has changed."""
        state = {key: told.as_json() for key, told in self.told.items()}
        text = json.dumps(state, separators=(",", ":")).encode()
        if text != self._kept:
            self._file.write_bytes(text)
            self._kept = text


@contextmanager
def alone(output: Location) -> Iterator[None]:
    """Make sure, during the block, that no other watch on this machine uses the directory.

    Raises:
        StoreError: another one does.
    """
    if output.local is None:
        yield
        return
    output.make_directory()
    descriptor = os.open(output.local / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock(descriptor, output)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, output: Location) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(f"another watch is writing to {output}") from None
