"""Keys of rows for ADDJOB UNIQUE: a row of a write always has the same key, however often a task or
a batch is repeated."""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

DIGEST = 16  # bytes


class RowKeys:
    """Makes the keys of a task's rows: ``write/partition/row``.

    A row is identified by a digest of its contents, plus a number if the task has several equal
    rows. Its position would not do: if the order changes on a repeat, a row would get the key of
    another row, and not be added.

    Remembers 8 bytes of each row's digest, which takes about 80 bytes of memory.

    Args:
        write: name of the write that may be repeated, such as ``query/batch``.
        partition: partition of the task.
    """

    def __init__(self, write: str, partition: int) -> None:
        self._prefix = f"{write}/{partition}/"
        self._seen: set[int] = set()
        self._again: Counter[int] = Counter()

    def key(self, body: bytes | str, others: Sequence[object]) -> str:
        """The key of a row with this body, and these values in its other columns."""
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
        """Whether ``key`` made this key; otherwise it came from the row."""
        return isinstance(key, str) and key.startswith(self._prefix)
