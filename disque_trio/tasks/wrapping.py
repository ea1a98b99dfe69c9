"""Serializers around others: one encrypts, one keeps what is large outside of the nodes.

They see all that goes through nodes: arguments, results, and both in chains and groups.
"""

import hmac
import os
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, Protocol

from disque_trio.extras import how_to_install
from disque_trio.tasks.errors import BucketFailed
from disque_trio.tasks.serializers import Serializer, fingerprint, serializer_of

_NAME: Final = re.compile(r"[0-9a-f]{64}")
_HERE, _THERE = b"\0", b"\1"


class Encrypted:
    """Encrypts what another serializer makes (Fernet: AES and HMAC). Whoever lacks the keys can
    neither read nor change it. Needs the extra ``encryption``.

    Args:
        keys: made by ``new_key``. The first one encrypts, and all decrypt: to replace a key, put
            the new one behind it, deploy that everywhere, and then change their order.
        serializer: the other serializer: ``json``, ``msgpack`` or an object.

    Raises:
        ImportError: the extra is not installed.
        ValueError: there is no key, or one is malformed.

    Attributes:
        content_type: that of the other serializer with ``+encrypted``.
    """

    def __init__(self, keys: str | Sequence[str], serializer: str | Serializer = "json") -> None:
        fernet = _fernet()
        listed = [keys] if isinstance(keys, str) else list(keys)
        if not listed:
            raise ValueError("encryption needs a key")
        try:
            self._fernet = fernet.MultiFernet([fernet.Fernet(key) for key in listed])
        except ValueError:
            raise ValueError("this is no key: use one that Encrypted.new_key() has made") from None
        self._invalid: type[Exception] = fernet.InvalidToken
        self._key = listed[0].encode()
        self._inner = serializer_of(serializer)
        self.content_type: str = f"{self._inner.content_type}+encrypted"
        self.blocks: bool = getattr(self._inner, "blocks", False)

    @staticmethod
    def new_key() -> str:
        """Make a key."""
        key: bytes = _fernet().Fernet.generate_key()
        return key.decode()

    def dumps(self, value: Any, /) -> bytes:
        return urlsafe_b64decode(self._fernet.encrypt(self._inner.dumps(value)))

    def loads(self, data: bytes, /) -> Any:
        try:
            plain = self._fernet.decrypt(urlsafe_b64encode(data))
        except self._invalid:
            raise ValueError("it was not encrypted with one of the keys") from None
        return self._inner.loads(plain)

    def fingerprint(self, value: Any, /) -> bytes:
        """Return bytes that are equal for equal values, and tell nobody what these are."""
        return hmac.digest(self._key, fingerprint(self._inner, value), "sha256")


def _fernet() -> Any:
    try:
        from cryptography import fernet
    except ImportError as error:
        raise ImportError(
            f"Encrypted needs cryptography: {how_to_install('encryption')}"
        ) from error
    return fernet


class Bucket(Protocol):
    """Where ``Stored`` keeps what is large: a bucket of an object store, for example."""

    def put(self, name: str, data: bytes, /) -> object:
        """Keep ``data`` under a name that follows from it; it may be there already."""

    def get(self, name: str, /) -> bytes:
        """Return the data of that name. Raises KeyError or FileNotFoundError if it is gone."""


class Stored:
    """Keeps what another serializer makes in a store if it is large; nodes have its name.

    The store may block: workers use it in threads. What is kept is not deleted here, since jobs,
    their retries and their dead letters need it.

    Args:
        store: the store.
        serializer: the other serializer: ``json``, ``msgpack`` or an object.
        above: what has more bytes goes to the store.

    Attributes:
        content_type: that of the other serializer with ``+stored``.
    """

    blocks: Final = True

    def __init__(
        self, store: Bucket, serializer: str | Serializer = "json", *, above: int = 65_536
    ) -> None:
        self._store = store
        self._inner = serializer_of(serializer)
        self._above = above
        self.content_type: str = f"{self._inner.content_type}+stored"

    def dumps(self, value: Any, /) -> bytes:
        data = self._inner.dumps(value)
        if len(data) <= self._above:
            return _HERE + data
        name = sha256(data).hexdigest()
        try:
            self._store.put(name, data)
        except Exception as error:
            raise BucketFailed(f"{len(data)} bytes were not kept: {error!r}") from error
        return _THERE + name.encode()

    def loads(self, data: bytes, /) -> Any:
        if data[:1] == _HERE:
            return self._inner.loads(data[1:])
        name = data[1:].decode("ascii", "replace")
        if data[:1] != _THERE or not _NAME.fullmatch(name):  # it may become a path
            raise ValueError("this names nothing in the store")
        try:
            found = self._store.get(name)
        except (KeyError, FileNotFoundError):
            raise ValueError(f"it is gone from the store: {name}") from None
        except Exception as error:
            raise BucketFailed(f"the store did not return {name}: {error!r}") from error
        if sha256(found).hexdigest() != name:
            raise ValueError(f"it was changed in the store: {name}")
        return self._inner.loads(found)

    def fingerprint(self, value: Any, /) -> bytes:
        """Return bytes that are equal for equal values."""
        return fingerprint(self._inner, value)


class Files:
    """A store in a directory that producers and workers share.

    Args:
        directory: made if there is none.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)

    def put(self, name: str, data: bytes, /) -> None:
        """Write a file, completely or not at all, or renew its time. Raises OSError."""
        path = self._directory / name
        try:
            os.utime(path)
            return
        except FileNotFoundError:
            self._directory.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=self._directory, prefix=".", delete=False) as file:
            file.write(data)
        Path(file.name).replace(path)

    def get(self, name: str, /) -> bytes:
        """Read a file. Raises OSError."""
        return (self._directory / name).read_bytes()

    def delete_older(self, seconds: float) -> int:
        """Delete files that were last written so long ago, and return their number. Give jobs that
        need them less time: their time to live, and that of their dead letters. Raises OSError."""
        limit = time.time() - seconds
        old = [path for path in self._directory.iterdir() if path.stat().st_mtime < limit]
        for path in old:
            path.unlink(missing_ok=True)
        return len(old)
