"""Printing replies the way redis-cli does, byte for byte.

Owns the four formats: for people (numbered, nested, quoted), raw, CSV and JSON.
"""

from collections.abc import Callable
from enum import Enum

from disque_trio.cli.resp import Kind, Reply


class Output(Enum):
    """The format in which replies are printed."""

    STANDARD = "standard"
    RAW = "raw"
    CSV = "csv"
    JSON = "json"


_EMPTY = {
    Kind.ARRAY: b"(empty array)\n",
    Kind.MAP: b"(empty hash)\n",
    Kind.SET: b"(empty set)\n",
    Kind.PUSH: b"(empty push)\n",
}
_INDEX_MARK = {Kind.SET: b"~", Kind.MAP: b"#"}


_BEFORE = {Kind.INTEGER: b"(integer) ", Kind.DOUBLE: b"(double) ", Kind.ERROR: b"(error) "}


def quote(text: bytes) -> bytes:
    """Quote with double quotes, and escape everything but printable ASCII."""
    # Imported here: scripts print replies raw, and need not wait for the compiled library.
    from disque_trio.resp.inline import quote

    return quote(text)


def format_reply(reply: Reply, output: Output, *, is_text: bool = False) -> bytes:
    """The text to print for a reply, with its final newline.

    Args:
        reply: the reply.
        output: the format.
        is_text: the reply is a text for people (INFO, CLIENT LIST) and is printed unchanged.
    """
    if is_text:
        return _raw(reply)
    if output is Output.STANDARD:
        return _standard(reply, b"")
    if output is Output.RAW:
        return _raw(reply) + b"\n"
    if output is Output.CSV:
        return _csv(reply) + b"\n"
    return _json(reply) + b"\n"


def _standard(reply: Reply, prefix: bytes) -> bytes:
    kind, text = reply.kind, reply.text
    if kind is Kind.STRING:
        return quote(text) + b"\n"
    if kind is Kind.NIL:
        return b"(nil)\n"
    if kind is Kind.BOOLEAN:
        return b"(true)\n" if text == b"t" else b"(false)\n"
    if kind in _EMPTY:
        return _standard_aggregate(reply, prefix)
    return _BEFORE.get(kind, b"") + text + b"\n"


def _standard_aggregate(reply: Reply, prefix: bytes) -> bytes:
    if not reply.elements:
        return _EMPTY[reply.kind]
    is_map = reply.kind is Kind.MAP
    rows = reply.pairs() if is_map else [(element,) for element in reply.elements]
    width = len(str(len(rows)))
    mark = _INDEX_MARK.get(reply.kind, b")")
    inner = prefix + b" " * (width + 2)
    lines = []
    for index, row in enumerate(rows, 1):
        # The first row continues the line of its parent, which has already written the prefix.
        start = b"" if index == 1 else prefix
        line = start + str(index).rjust(width).encode() + mark + b" "
        if is_map:
            key, value = row
            shown = _standard(value, inner)
            # An aggregate of more than one line starts on a line of its own.
            separator = b"\n" + inner if value.elements and shown.count(b"\n") > 1 else b""
            line += _standard(key, inner)[:-1] + b" => " + separator + shown
        else:
            line += _standard(row[0], inner)
        lines.append(line)
    return b"".join(lines)


def _raw(reply: Reply) -> bytes:
    if reply.kind is Kind.ERROR:
        return reply.text + b"\n"
    if reply.kind is Kind.NIL:
        return b""
    if reply.kind is Kind.BOOLEAN:
        return b"(true)" if reply.text == b"t" else b"(false)"
    if reply.kind is Kind.MAP:
        return b"\n".join([_raw(key) + b" " + _raw(value) for key, value in reply.pairs()])
    if reply.kind in _EMPTY:
        return b"\n".join([_raw(element) for element in reply.elements])
    return reply.text


def _csv(reply: Reply) -> bytes:
    if reply.kind is Kind.ERROR:
        return b"ERROR," + quote(reply.text)
    if reply.kind in (Kind.STATUS, Kind.STRING, Kind.VERBATIM):
        return quote(reply.text)
    return _scalar_or_elements(reply, _csv, b"NULL", lambda parts: b",".join(parts))


def _json(reply: Reply) -> bytes:
    if reply.kind is Kind.ERROR:
        return b"error:" + _json_string(reply.text)
    if reply.kind in (Kind.STATUS, Kind.STRING, Kind.VERBATIM):
        return _json_string(reply.text)
    if reply.kind is Kind.MAP:
        entries = [_json_key(key) + b":" + _json(value) for key, value in reply.pairs()]
        return b"{" + b",".join(entries) + b"}"
    return _scalar_or_elements(reply, _json, b"null", lambda parts: b"[" + b",".join(parts) + b"]")


def _json_key(key: Reply) -> bytes:
    encoded = _json(key)
    return encoded if encoded.startswith(b'"') else _json_string(encoded)


def _json_string(text: bytes) -> bytes:
    import json

    encoded = json.dumps(text.decode("utf-8", "surrogateescape"), ensure_ascii=False)
    return encoded.encode("utf-8", "surrogateescape")


def _scalar_or_elements(
    reply: Reply,
    write: Callable[[Reply], bytes],
    null: bytes,
    join: Callable[[list[bytes]], bytes],
) -> bytes:
    if reply.kind is Kind.NIL:
        return null
    if reply.kind is Kind.BOOLEAN:
        return b"true" if reply.text == b"t" else b"false"
    if reply.kind in _EMPTY:
        return join([write(element) for element in reply.elements])
    return reply.text
