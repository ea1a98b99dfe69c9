"""The names of the keys of a queue in Redis.

Owns how names become keys. All keys of one queue begin with ``<prefix>:{q=<name>}``, so that a
cluster keeps them together, and end with what they are. Names are percent-encoded: any bytes can be
a name, different names have different keys, and the name can be read back from a key.
"""

import binascii
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

SLOTS: Final = 16384
_MOST_CACHED: Final = 50_000
_IN_GLOB: Final = "\\*?["


class KeyNames:
    """The names of keys with a certain prefix.

    Raises:
        ValueError: the prefix has a brace, which would put keys of one queue into different slots.
    """

    def __init__(self, prefix: str = "bananaq") -> None:
        if "{" in prefix or "}" in prefix:
            raise ValueError("the prefix of the keys in Redis must not contain braces")
        self.prefix = prefix
        self._bases: dict[bytes, bytes] = {}
        self._encoded: dict[bytes, bytes] = {}
        self._others: dict[tuple[int, int], bytes] = {}

    def base(self, queue: bytes) -> bytes:
        """Return the beginning of all keys of the queue."""
        base = self._bases.get(queue)
        if base is None:
            if len(self._bases) >= _MOST_CACHED:
                self._bases.clear()
            base = f"{self.prefix}:{{q={quote_from_bytes(queue, safe='')}}}".encode()
            self._bases[queue] = base
        return base

    def encode(self, name: bytes) -> bytes:
        """Encode the name of a group for keys."""
        encoded = self._encoded.get(name)
        if encoded is None:
            if len(self._encoded) >= _MOST_CACHED:
                self._encoded.clear()
            encoded = quote_from_bytes(name, safe="").encode()
            self._encoded[name] = encoded
        return encoded

    def decode(self, encoded: bytes) -> bytes:
        """Decode a name encoded by ``encode``."""
        return unquote_to_bytes(encoded)

    def channel(self, queue: bytes) -> bytes:
        """Return the channel for messages that there may be something new in the queue."""
        return self.base(queue) + b":new"

    def queue_of(self, key: bytes) -> bytes | None:
        """Return the queue that a key or channel belongs to; None: not a queue of ours."""
        start = f"{self.prefix}:{{q=".encode()
        end = key.rfind(b"}:")
        if not key.startswith(start) or end < len(start):
            return None
        return unquote_to_bytes(key[len(start) : end])

    def pattern(self, suffix: str) -> bytes:
        """Return the SCAN pattern for keys of all queues that end with ``suffix``."""
        prefix = "".join("\\" + c if c in _IN_GLOB else c for c in self.prefix)
        return f"{prefix}:{{q=*}}:{suffix}".encode()

    def of_no_queue(self, low: int, high: int) -> bytes:
        """Return a key that belongs to no queue, in one of the slots ``low`` to ``high``."""
        key = self._others.get((low, high))
        if key is None:
            number = 0
            while not low <= binascii.crc_hqx(b"%d" % number, 0) % SLOTS <= high:
                number += 1
            if len(self._others) >= _MOST_CACHED:
                self._others.clear()
            key = self._others[low, high] = f"{self.prefix}:probe:{{{number}}}".encode()
        return key

    def slot(self, queue: bytes) -> int:
        """Return the cluster's slot for all keys of the queue."""
        base = self.base(queue)
        tag = base[base.index(b"{") + 1 : -1]
        return binascii.crc_hqx(tag, 0) % SLOTS
