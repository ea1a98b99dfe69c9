"""Seals the traffic between two nodes with a common secret: nobody else can add to it, change it,
replay it, or send it back.

Each side greets with ``MAGIC`` and a nonce. A key for each direction is derived from the secret and
both nonces, so data from another connection, or from the other direction, is worthless here. Then
everything is sent in records: length, MAC over a counter and the data, data. The first record is
empty: it proves that its sender knows the secret. The side that accepted the connection proves it
second, so a stranger who connects to a node learns nothing from which to guess the secret.

Nothing is encrypted. An attacker can delay records, and cut the connection: then packets are lost,
as with any connection that breaks.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from disque_trio.native import mypyc_attr

MAGIC: Final = b"DTseal1\n"  # differs from the signature of packets in its first bytes
IDENTITY_MAGIC: Final = b"DTident1"  # of the handshake with keys (see ``identity``)
NONCE_SIZE: Final = 32
LONGEST: Final = 64 * 1024  # bytes of data in a record
_GREETING_SIZE: Final = len(MAGIC) + NONCE_SIZE
MAC_SIZE: Final = 16
_HEAD: Final = 4 + MAC_SIZE
# The purpose of a key: its personalization in BLAKE2, at most 16 bytes.
_MASTER: Final = b"disque secret"
_FROM_OPENER: Final = b"disque opener"
_FROM_OTHER: Final = b"disque other"
_BINDING: Final = b"disque binding"


class SealError(Exception):
    """One side does not know the other's secret, or the data was changed; the connection has to be
    closed."""


def master_key(secret: bytes) -> bytes:
    """Derive the key, 64 bytes, from ``secret``, which may have any length."""
    return hashlib.blake2b(secret, person=_MASTER).digest()


class MacChain:
    """Computes the MACs of the records of one direction of one connection: each covers the number
    of its record, too.

    Args:
        key: 32 bytes that nothing else uses.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._records = 0

    def mac(self, data: bytes | memoryview) -> bytes:
        """The MAC of ``data`` as the next record, ``MAC_SIZE`` bytes."""
        mac = hashlib.blake2b(self._records.to_bytes(8, "big"), digest_size=MAC_SIZE, key=self._key)
        mac.update(data)
        return mac.digest()

    def count(self) -> None:
        """Advance to the next record."""
        self._records += 1


def _direction(master: bytes, nonces: bytes, opener: bool) -> MacChain:
    """Make the MACs of what one side sends.

    Args:
        master: of the secret.
        nonces: of the side that opened the connection, then of the other.
        opener: whether it is the side that opened the connection.
    """
    person = _FROM_OPENER if opener else _FROM_OTHER
    return MacChain(hashlib.blake2b(nonces, key=master, person=person, digest_size=32).digest())


@mypyc_attr(allow_interpreted_subclasses=True)
class Records:
    """Protects the bytes that go over one connection, in both directions."""

    def close(self, data: bytes) -> bytes:
        """Put ``data``, which is not empty, into records."""
        raise NotImplementedError

    def open(self, data: bytes) -> bytes:
        """Return the data in the records that the received ``data`` completes.

        Raises:
            SealError: ignore everything that comes after it.
        """
        raise NotImplementedError


class Seal(Records):
    """One side of a sealed connection.

    Args:
        masters: keys of the valid secrets, at least one. This side uses the first.
        nonce: ``NONCE_SIZE`` random bytes that were never used before.
        opener: whether this side opened the connection.

    Attributes:
        greeting: to be sent before anything else.
        ready: the other side knows one of the secrets; ``close`` may be used.
    """

    def __init__(self, masters: Sequence[bytes], nonce: bytes, opener: bool) -> None:
        self.greeting = MAGIC + nonce
        self.ready = False
        self._masters = masters
        self._nonce = nonce
        self._opener = opener
        self._nonces = b""  # of both sides, once the other side has greeted
        self._outgoing: MacChain | None = None
        self._incoming: MacChain | None = None
        self._theirs = b""  # the master that the other side uses
        self._rest = b""  # received part of an incomplete record
        self._to_answer = b""

    @property
    def ended(self) -> str:
        """Return why the other side may have closed the connection before it was ``ready``."""
        if self._nonces:
            return "it closed the connection: its cluster-secret may differ from this node's"
        return "it closed the connection: it may have no cluster-secret, while this node has one"

    def holds_with(self, masters: Sequence[bytes]) -> bool:
        """Whether the secrets that both sides use are among ``masters``."""
        if self._outgoing is None or self._incoming is None:
            return False
        return self._masters[0] in masters and self._theirs in masters

    def binding(self) -> bytes:
        """Return 32 bytes that only the two sides of this connection know, once it is ``ready``."""
        ours, theirs = self._masters[0], self._theirs
        key = ours + theirs if self._opener else theirs + ours
        binding = hashlib.blake2b(self._nonces, person=_BINDING, digest_size=32)
        binding.update(key)
        return binding.digest()

    def answer(self) -> bytes:
        """Return what ``open`` wants to be sent to the other side now; may be empty."""
        answer, self._to_answer = self._to_answer, b""
        return answer

    def close(self, data: bytes) -> bytes:
        if len(data) <= LONGEST:
            return self._record(data)
        view = memoryview(data)
        return b"".join(
            [self._record(view[at : at + LONGEST]) for at in range(0, len(view), LONGEST)]
        )

    def _record(self, data: bytes | memoryview) -> bytes:
        outgoing = self._outgoing
        assert outgoing is not None
        mac = outgoing.mac(data)
        outgoing.count()
        return b"".join([len(data).to_bytes(4, "big"), mac, data])

    def open(self, data: bytes) -> bytes:
        if self._rest:
            data = self._rest + data
            self._rest = b""
        at = 0
        if not self._nonces:
            at = self._hear_greeting(data)
            if not at:
                self._rest = data
                return b""
        size = len(data)
        opened: list[memoryview] = []
        view = memoryview(data)
        while size - at >= _HEAD:
            length = int.from_bytes(view[at : at + 4], "big")
            if length > LONGEST or (length > 0) != self.ready:
                raise SealError("the data is not a record of a node with this cluster-secret")
            end = at + _HEAD + length
            if end > size:
                break
            record = view[at + _HEAD : end]
            self._check(view[at + 4 : at + _HEAD], record)
            opened.append(record)
            at = end
        self._rest = data[at:]
        return b"".join(opened)

    def _hear_greeting(self, data: bytes) -> int:
        """Return how many bytes of ``data`` the greeting takes; 0: it is incomplete."""
        if data[: len(MAGIC)] != MAGIC[: len(data)]:
            raise SealError("it has no cluster-secret, but this node has one")
        if len(data) < _GREETING_SIZE:
            return 0
        other = data[len(MAGIC) : _GREETING_SIZE]
        if other == self._nonce:
            raise SealError("it sent this node's greeting back")
        opener = self._opener
        self._nonces = self._nonce + other if opener else other + self._nonce
        self._outgoing = _direction(self._masters[0], self._nonces, opener)
        if opener:
            self._to_answer += self._record(b"")
        return _GREETING_SIZE

    def _check(self, mac: memoryview, data: memoryview) -> None:
        """Check the next record."""
        incoming = self._incoming
        if incoming is None:
            for master in self._masters:
                incoming = _direction(master, self._nonces, not self._opener)
                if hmac.compare_digest(incoming.mac(data), mac):
                    self._theirs = master
                    break
            else:
                raise SealError("its cluster-secret differs from this node's")
            self._incoming = incoming
            self.ready = True
            if not self._opener:
                self._to_answer += self._record(b"")
        elif not hmac.compare_digest(incoming.mac(data), mac):
            raise SealError("the data was changed on the way, or is not from that node")
        incoming.count()
