"""How arguments and results become bytes."""

import json
from collections.abc import Iterable
from typing import Any, Protocol

from disque_trio.extras import how_to_install
from disque_trio.tasks.errors import BadJob


class Serializer(Protocol):
    """Turns values into bytes and back.

    Attributes:
        content_type: names the format, in jobs and results; it has no spaces.
    """

    @property
    def content_type(self) -> str: ...

    def dumps(self, value: Any, /) -> bytes:
        """The bytes of a value. Raises TypeError or ValueError: it has none."""

    def loads(self, data: bytes, /) -> Any:
        """The value of bytes. May raise anything where they make no sense."""


class Json:
    """JSON in UTF-8: strings, numbers, booleans, None, lists and dicts. A tuple comes out as a
    list."""

    content_type = "application/json"

    def dumps(self, value: Any, /) -> bytes:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def loads(self, data: bytes, /) -> Any:
        return json.loads(data)


class MessagePack:
    """MessagePack: as JSON, but bytes and times with a zone as well, and smaller. Raises
    ImportError where the extra ``msgpack`` is not installed."""

    content_type = "application/msgpack"

    def __init__(self) -> None:
        try:
            import msgpack
        except ImportError as error:
            raise ImportError(
                "serializer='msgpack' needs msgpack: pip install 'disque-trio[msgpack]', here "
                f"{how_to_install('msgpack')}"
            ) from error
        self._packer = msgpack

    def dumps(self, value: Any, /) -> bytes:
        data: bytes = self._packer.packb(value, datetime=True)
        return data

    def loads(self, data: bytes, /) -> Any:
        return self._packer.unpackb(data, timestamp=3)


def serializer_of(choice: "str | Serializer") -> Serializer:
    """The serializer ``json``, ``msgpack`` or one of the program's own. Raises ValueError:
    another name, or a content type with spaces."""
    if choice == "json":
        return Json()
    if choice == "msgpack":
        return MessagePack()
    if isinstance(choice, str):
        raise ValueError(f"no serializer {choice!r}: json, msgpack, or an object of your own")
    if not choice.content_type or " " in choice.content_type or "\n" in choice.content_type:
        raise ValueError(f"not a content type: {choice.content_type!r}")
    return choice


class Serializers:
    """The serializers of an app by content type: what it can read.

    Args:
        known: the first ones.
    """

    def __init__(self, known: Iterable[Serializer]) -> None:
        self._by_type = {one.content_type: one for one in known}

    def add(self, serializer: Serializer) -> None:
        """Add one. Raises ValueError: there is another one of this content type."""
        before = self._by_type.setdefault(serializer.content_type, serializer)
        if type(before) is not type(serializer):
            raise ValueError(f"two serializers of the content type {serializer.content_type}")

    def of(self, content_type: str) -> Serializer:
        """The one of a content type. Raises BadJob: there is none."""
        try:
            return self._by_type[content_type]
        except KeyError:
            raise BadJob(f"unknown content type: {content_type!r}") from None
