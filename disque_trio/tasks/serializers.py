"""How arguments and results are converted to bytes."""

import json
from collections.abc import Iterable
from typing import Any, Protocol

from disque_trio.extras import how_to_install
from disque_trio.tasks.errors import BadJob


class Serializer(Protocol):
    """Converts values to bytes and back.

    Attributes:
        content_type: the name of the format in jobs and results; contains no spaces.
    """

    @property
    def content_type(self) -> str: ...

    def dumps(self, value: Any, /) -> bytes:
        """Serialize a value. Raises TypeError or ValueError if that is not possible."""

    def loads(self, data: bytes, /) -> Any:
        """Deserialize a value. May raise any exception if the bytes are invalid."""


class Json:
    """JSON in UTF-8: strings, numbers, booleans, None, lists and dicts. Tuples become lists."""

    content_type = "application/json"

    def dumps(self, value: Any, /) -> bytes:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def loads(self, data: bytes, /) -> Any:
        return json.loads(data)


class MessagePack:
    """MessagePack: like JSON, but smaller, and with bytes and times with a time zone. Raises
    ImportError if the extra ``msgpack`` is not installed."""

    content_type = "application/msgpack"

    def __init__(self) -> None:
        try:
            import msgpack
        except ImportError as error:
            raise ImportError(
                f"serializer='msgpack' needs msgpack: {how_to_install('msgpack')}"
            ) from error
        self._packer = msgpack

    def dumps(self, value: Any, /) -> bytes:
        data: bytes = self._packer.packb(value, datetime=True)
        return data

    def loads(self, data: bytes, /) -> Any:
        return self._packer.unpackb(data, timestamp=3)


def serializer_of(choice: "str | Serializer") -> Serializer:
    """Return the serializer ``json`` or ``msgpack``, or the given object. Raises ValueError for
    other names, or if the content type is empty or has spaces."""
    if choice == "json":
        return Json()
    if choice == "msgpack":
        return MessagePack()
    if isinstance(choice, str):
        raise ValueError(f"no serializer {choice!r}: json, msgpack, or an object of your own")
    if not choice.content_type or " " in choice.content_type or "\n" in choice.content_type:
        raise ValueError(f"not a content type: {choice.content_type!r}")
    return choice


def fingerprint(serializer: Serializer, value: Any) -> bytes:
    """Return bytes that are equal for equal values, for keys. What a serializer makes may differ
    each time; then it has a method for this."""
    make = getattr(serializer, "fingerprint", serializer.dumps)
    data: bytes = make(value)
    return data


class Serializers:
    """The serializers that an app can read, by content type.

    Args:
        known: the first serializers.
    """

    def __init__(self, known: Iterable[Serializer]) -> None:
        self._by_type = {one.content_type: one for one in known}

    def add(self, serializer: Serializer) -> None:
        """Add a serializer. Raises ValueError if there is another one of its content type."""
        before = self._by_type.setdefault(serializer.content_type, serializer)
        if type(before) is not type(serializer):
            raise ValueError(f"two serializers of the content type {serializer.content_type}")

    def of(self, content_type: str) -> Serializer:
        """Return the serializer of a content type. Raises BadJob if there is none."""
        try:
            return self._by_type[content_type]
        except KeyError:
            raise BadJob(f"unknown content type: {content_type!r}") from None
