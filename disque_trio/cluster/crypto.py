"""The key of a node, by means of the package ``cryptography``, which the extra ``identity`` has."""

import os
from collections.abc import Callable

from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from disque_trio.protocol.identity import KEY_SIZE, NONCE_SIZE, Cipher, Crypto, OneTimeKey


class KeyFormatError(ValueError):
    """The text is not the private key of a node; the message says why."""


def missing_algorithm() -> str:
    """The name of an algorithm that OpenSSL was built or set up without; empty: it has all."""
    attempts: dict[str, Callable[[], object]] = {
        "Ed25519": lambda: NodeKey.generate().sign(b""),
        "X25519": lambda: X25519().exchange(X25519().public),
        "ChaCha20-Poly1305": lambda: ChaCha(bytes(KEY_SIZE)).encrypt(0, b""),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
        except UnsupportedAlgorithm:
            return name
    return ""


class ChaCha(Cipher):
    """ChaCha20-Poly1305 whose nonce is the number of the record."""

    def __init__(self, key: bytes) -> None:
        self._aead = ChaCha20Poly1305(key)

    def encrypt(self, number: int, data: bytes) -> bytes:
        return self._aead.encrypt(number.to_bytes(12, "big"), data, None)

    def decrypt(self, number: int, data: bytes) -> bytes | None:
        try:
            return self._aead.decrypt(number.to_bytes(12, "big"), data, None)
        except InvalidTag:
            return None


class X25519(OneTimeKey):
    """A key for one connection."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        super().__init__(self._private.public_key().public_bytes_raw())

    def exchange(self, public: bytes) -> bytes:
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            return b""


class NodeKey(Crypto):
    """The Ed25519 key of this node."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        super().__init__(private.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> "NodeKey":
        """Make a new key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, text: bytes) -> "NodeKey":
        """Read what ``pem`` returned. Raises ``KeyFormatError``."""
        try:
            private = load_pem_private_key(text, None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as problem:
            raise KeyFormatError("it is damaged, or not an unencrypted private key") from problem
        if not isinstance(private, Ed25519PrivateKey):
            raise KeyFormatError("it is not an Ed25519 key")
        return cls(private)

    def pem(self) -> bytes:
        """The private key as text, as openssl reads it."""
        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data)

    def verify(self, key: bytes, data: bytes, signature: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True

    def one_time_key(self) -> OneTimeKey:
        return X25519()

    def nonce(self) -> bytes:
        return os.urandom(NONCE_SIZE)

    def cipher(self, key: bytes) -> Cipher:
        return ChaCha(key)
