"""Keys of rows for ADDJOB UNIQUE: the same for the same row of the same write, however often a task
or a batch is repeated."""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

DIGEST = 16  # bytes


class RowKeys:
    """Makes the keys of a task's rows: ``write/partition/row``.

    A row goes by what is in it, and, if the task has several that are alike, by a number. Its place
    would not do: where the order differs the second time, a row would find the key of another one
    taken, and get no job.

    It remembers 8 bytes of each row, which takes about 80 of memory.

    Args:
        write: names what may be repeated, as ``query/batch``.
        partition: of the task.
    """

    def __init__(self, write: str, partition: int) -> None:
        self._prefix = f"{write}/{partition}/"
        self._seen: set[int] = set()
        self._again: Counter[int] = Counter()

    def key(self, body: bytes | str, others: Sequence[object]) -> str:
        """Of a row with this body and, in its other columns, these values."""
        text = repr(others).encode() if others else b""
        digest = blake2b(b"%d:%b" % (len(text), text), digest_size=DIGEST)
        digest.update(body if isinstance(body, bytes) else body.encode())
        name = digest.hexdigest()
        short = int(name[:16], 16)
        if short not in self._seen:
            self._seen.add(short)
            return self._prefix + name
        self._again[short] += 1
        return f"{self._prefix}{name}/{self._again[short]}"

    def made(self, key: object) -> bool:
        """Whether it is a key that ``key`` has made, instead of a row's own."""
        return isinstance(key, str) and key.startswith(self._prefix)
