"""The handshake by which two nodes show each other who they are, above TLS and the seal, if any.

A node is known by a pair of Ed25519 keys. Whoever opens the connection says HELLO first: nonce,
one-time X25519 key, node id, public key, wishes. The other side answers with its own HELLO, if the
node may talk to it at all. Then both sign all of that, the acceptor last, so that a stranger gets
no signature. The keys of the connection come from the one-time keys: who only passes the messages
on between two nodes can neither read nor change what follows, even if it knows the secret of the
cluster. What the seal was made of is signed too (``binding``).

    opener:    MAGIC nonce one-time-key id key flags
    acceptor:  MAGIC nonce one-time-key id key flags
    opener:    signature of both
    acceptor:  signature of both and of the opener's signature

Then everything is sent in records, which only have MACs, or are encrypted if one side wishes it.

The cryptography itself comes from a library, by way of ``Crypto``. This module does no I/O.
"""

import hashlib
import hmac
from collections.abc import Callable
from typing import Final

from disque_trio.native import mypyc_attr
from disque_trio.protocol.bus import SIGNATURE
from disque_trio.protocol.seal import (
    IDENTITY_MAGIC,
    LONGEST,
    MAC_SIZE,
    MacChain,
    Records,
    SealError,
)
from disque_trio.protocol.seal import MAGIC as SEAL_MAGIC
from disque_trio.protocol.serialjob import NODE_ID_LENGTH

NONCE_SIZE: Final = 32
KEY_SIZE: Final = 32
SIGNATURE_SIZE: Final = 64
ENCRYPT: Final = 1  # a flag: this side wishes that the connection is encrypted

_MAGIC: Final = IDENTITY_MAGIC
_NONCE_AT: Final = len(_MAGIC)
_EPHEMERAL_AT: Final = _NONCE_AT + NONCE_SIZE
_ID_AT: Final = _EPHEMERAL_AT + KEY_SIZE
_KEY_AT: Final = _ID_AT + NODE_ID_LENGTH
_FLAGS_AT: Final = _KEY_AT + KEY_SIZE
HELLO_SIZE: Final = _FLAGS_AT + 1
_HEAD: Final = 4
# What a hash is for: its personalization in BLAKE2, at most 16 bytes.
_TRANSCRIPT: Final = b"disque identity"
_FROM_OPENER: Final = b"disque id opener"
_FROM_OTHER: Final = b"disque id other"
_OPENER_SIGNS: Final = b"disque-trio cluster bus, opener\0"
_OTHER_SIGNS: Final = b"disque-trio cluster bus, acceptor\0"


class IdentityError(SealError):
    """The other side is not a node that may talk to this one, or the data was changed; the
    connection has to be closed. The text says why."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Cipher:
    """Encrypts the records of one direction with one key."""

    def encrypt(self, number: int, data: bytes) -> bytes:
        """Return ``data``, as record ``number``, encrypted and ``MAC_SIZE`` bytes longer."""
        raise NotImplementedError

    def decrypt(self, number: int, data: bytes) -> bytes | None:
        """Undo ``encrypt``. None: it is not what the other side encrypted as that record."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class OneTimeKey:
    """An X25519 key for one connection.

    Attributes:
        public: ``KEY_SIZE`` bytes.
    """

    def __init__(self, public: bytes) -> None:
        self.public = public

    def exchange(self, public: bytes) -> bytes:
        """Return the secret that is shared with the owner of ``public``; empty: that is no key."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Crypto:
    """The key of this node, and the cryptography of a library.

    Attributes:
        key: the public key of this node, ``KEY_SIZE`` bytes.
    """

    def __init__(self, key: bytes) -> None:
        self.key = key

    def sign(self, data: bytes) -> bytes:
        """Return the signature of ``data`` with this node's key."""
        raise NotImplementedError

    def verify(self, key: bytes, data: bytes, signature: bytes) -> bool:
        """Whether the owner of ``key`` has signed ``data``."""
        raise NotImplementedError

    def one_time_key(self) -> OneTimeKey:
        """Make a new key for a connection."""
        raise NotImplementedError

    def nonce(self) -> bytes:
        """Return ``NONCE_SIZE`` random bytes."""
        raise NotImplementedError

    def cipher(self, key: bytes) -> Cipher:
        """Make a cipher with ``key``, ``KEY_SIZE`` bytes."""
        raise NotImplementedError


class _Direction:
    """The records of one direction.

    Args:
        key: of the direction.
        cipher: encrypts them; None: they only get a MAC.
    """

    def __init__(self, key: bytes, cipher: Cipher | None) -> None:
        self._macs = MacChain(key)
        self._cipher = cipher
        self._number = 0

    def close(self, data: bytes) -> bytes:
        """Return ``data`` as the next record."""
        length = len(data).to_bytes(_HEAD, "big")
        if self._cipher is None:
            mac = self._macs.mac(data)
            self._macs.count()
            return b"".join([length, mac, data])
        encrypted = self._cipher.encrypt(self._number, data)
        self._number += 1
        return length + encrypted

    def open(self, body: bytes) -> bytes:
        """Return the data in the ``body`` of the next record. Raises ``IdentityError``."""
        if self._cipher is None:
            data = body[MAC_SIZE:]
            if hmac.compare_digest(self._macs.mac(data), body[:MAC_SIZE]):
                self._macs.count()
                return data
        else:
            decrypted = self._cipher.decrypt(self._number, body)
            if decrypted is not None:
                self._number += 1
                return decrypted
        raise IdentityError("the data was changed on the way, or is not from that node")


class Session(Records):
    """The records of a connection between two nodes that have shown who they are.

    Attributes:
        encrypted: whether nobody else can read them.
    """

    def __init__(self, outgoing: _Direction, incoming: _Direction, encrypted: bool) -> None:
        self.encrypted = encrypted
        self._outgoing = outgoing
        self._incoming = incoming
        self._rest = b""

    def close(self, data: bytes) -> bytes:
        if len(data) <= LONGEST:
            return self._outgoing.close(data)
        pieces = [data[at : at + LONGEST] for at in range(0, len(data), LONGEST)]
        return b"".join([self._outgoing.close(piece) for piece in pieces])

    def open(self, data: bytes) -> bytes:
        if self._rest:
            data = self._rest + data
        at = 0
        opened: list[bytes] = []
        while len(data) - at >= _HEAD:
            length = int.from_bytes(data[at : at + _HEAD], "big")
            if not 0 < length <= LONGEST:
                raise IdentityError("the data is not a record of that node")
            end = at + _HEAD + MAC_SIZE + length
            if end > len(data):
                break
            opened.append(self._incoming.open(data[at + _HEAD : end]))
            at = end
        self._rest = data[at:]
        return b"".join(opened)


class Handshake:
    """One side of a handshake. All bytes are as they go over the connection, even if it is sealed.

    Args:
        crypto: this node's key.
        id: of this node.
        opener: whether this side opened the connection.
        required: a node that shows no identity is refused; otherwise an acceptor takes it as it is.
        encrypt: wish for encryption.
        judge: why the node with this id and key may not talk to this one; empty: it may.

    Attributes:
        ready: it is done.
        plain: the other side has shown no identity, and need not.
        heard: the other side has said HELLO.
        peer, key: id and key of the other side once it is ``ready``; empty if ``plain``.
        rest: what came after the handshake; if ``plain``, all that came.
        records: of the connection once it is ``ready``; None if ``plain``.
    """

    def __init__(
        self,
        crypto: Crypto,
        id: bytes,
        opener: bool,
        required: bool,
        encrypt: bool,
        judge: Callable[[bytes, bytes], str],
    ) -> None:
        self.ready = False
        self.plain = False
        self.heard = False
        self.peer = b""
        self.key = b""
        self.rest = b""
        self.records: Session | None = None
        self._crypto = crypto
        self._id = id
        self._opener = opener
        self._required = required
        self._flags = ENCRYPT if encrypt else 0
        self._judge = judge
        self._binding = b""
        self._own = b""  # this side's HELLO
        self._one_time: OneTimeKey | None = None
        self._received = b""
        self._hello = b""  # the other side's
        self._transcript = b""
        self._shared = b""

    @property
    def ended(self) -> str:
        """Why the other side may have closed the connection before it was ``ready``."""
        if self.heard:
            return "it closed the connection during the handshake of cluster-identity"
        return (
            "it closed the connection: it may not know this node's key (CLUSTER MEET on a member "
            "lets a node in), or have no cluster-identity"
        )

    def begin(self, binding: bytes) -> bytes:
        """Begin on a connection whose seal has this ``binding``; empty: it is not sealed. Returns
        what to send. Everything that is received from now on belongs into ``receive``."""
        self._binding = binding
        return self._greet() if self._opener else b""

    def _greet(self) -> bytes:
        crypto = self._crypto
        self._one_time = one_time = crypto.one_time_key()
        self._own = b"".join(
            [
                _MAGIC,
                crypto.nonce(),
                one_time.public,
                self._id,
                crypto.key,
                bytes([self._flags]),
            ]
        )
        return self._own

    def receive(self, data: bytes) -> bytes:
        """Handle received ``data``; returns what to send.

        Raises:
            IdentityError: close the connection.
        """
        self._received += data
        answer = b""
        if not self.heard:
            if self._is_plain():
                self.ready = self.plain = True
                self.rest = self._received
                return b""
            if len(self._received) < HELLO_SIZE:
                return b""
            answer = self._hear_hello(self._received[:HELLO_SIZE])
            self._received = self._received[HELLO_SIZE:]
        if not self.ready and len(self._received) >= SIGNATURE_SIZE:
            answer += self._hear_signature(self._received[:SIGNATURE_SIZE])
            self.rest = self._received[SIGNATURE_SIZE:]
        return answer

    def _is_plain(self) -> bool:
        """Whether the other side begins with packets, sealed if this side has a seal, and may.
        Raises ``IdentityError``."""
        start = self._received[: len(_MAGIC)]
        if start == _MAGIC[: len(start)]:
            return False
        # A record of the seal begins with its length, which is less than 2^24.
        head = start[: len(SIGNATURE)]
        begins = head[:1] == b"\0" if self._binding else head == SIGNATURE[: len(head)]
        if begins or head == SIGNATURE:
            if self._opener or self._required:
                raise IdentityError("it shows no identity, but this node has cluster-identity")
            return begins and (len(start) >= len(SIGNATURE) or bool(self._binding))
        if start == SEAL_MAGIC[: len(start)]:
            raise IdentityError("it has a cluster-secret, but this node has none")
        raise IdentityError("it sends neither an identity nor packets of the cluster bus")

    def _hear_hello(self, hello: bytes) -> bytes:
        self.heard = True
        nonce = hello[_NONCE_AT:_EPHEMERAL_AT]
        if self._opener and nonce == self._own[_NONCE_AT:_EPHEMERAL_AT]:
            raise IdentityError("it sent this node's identity back")
        self._hello = hello
        self._check()
        answer = b"" if self._opener else self._greet()
        one_time = self._one_time
        assert one_time is not None
        self._shared = one_time.exchange(hello[_EPHEMERAL_AT:_ID_AT])
        if not self._shared:
            raise IdentityError("its one-time key is not valid")
        both = self._own + hello if self._opener else hello + self._own
        binding = len(self._binding).to_bytes(1, "big") + self._binding
        self._transcript = hashlib.blake2b(binding + both, person=_TRANSCRIPT).digest()
        if self._opener:
            answer = self._crypto.sign(_OPENER_SIGNS + self._transcript)
            self._note_signature(answer)
        return answer

    def _check(self) -> None:
        """Ask whether the other side may talk to this node. Raises ``IdentityError``."""
        problem = self._judge(self._hello[_ID_AT:_KEY_AT], self._hello[_KEY_AT:_FLAGS_AT])
        if problem:
            raise IdentityError(problem)

    def _note_signature(self, signature: bytes) -> None:
        """Add the opener's ``signature`` to the transcript."""
        self._transcript = hashlib.blake2b(
            self._transcript + signature, person=_TRANSCRIPT
        ).digest()

    def _hear_signature(self, signature: bytes) -> bytes:
        key = self._hello[_KEY_AT:_FLAGS_AT]
        purpose = _OTHER_SIGNS if self._opener else _OPENER_SIGNS
        if not self._crypto.verify(key, purpose + self._transcript, signature):
            raise IdentityError("it does not have the key that it shows, or somebody is in between")
        self._check()  # it may have been expelled meanwhile
        answer = b""
        if not self._opener:
            self._note_signature(signature)
            answer = self._crypto.sign(_OTHER_SIGNS + self._transcript)
        self.peer = self._hello[_ID_AT:_KEY_AT]
        self.key = key
        encrypted = (self._flags | self._hello[_FLAGS_AT]) & ENCRYPT != 0
        outgoing = self._direction(self._opener, encrypted)
        self.records = Session(outgoing, self._direction(not self._opener, encrypted), encrypted)
        self._shared = b""
        self._one_time = None
        self.ready = True
        return answer

    def _direction(self, from_opener: bool, encrypted: bool) -> _Direction:
        person = _FROM_OPENER if from_opener else _FROM_OTHER
        key = hashlib.blake2b(
            self._transcript, key=self._shared, person=person, digest_size=32
        ).digest()
        return _Direction(key, self._crypto.cipher(key) if encrypted else None)
