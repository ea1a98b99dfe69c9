"""Splits inline commands into arguments, with the quotes and escapes of redis-cli."""

from typing import Final

_ESCAPES: Final = {
    ord("n"): b"\n",
    ord("r"): b"\r",
    ord("t"): b"\t",
    ord("b"): b"\b",
    ord("a"): b"\a",
}
_BLANKS: Final = b" \t\n\r\v\f\0"
_HEX: Final = b"0123456789abcdefABCDEF"
_DOUBLE: Final = ord('"')
_SINGLE: Final = ord("'")
_BACKSLASH: Final = ord("\\")
_PLAIN: Final = bytes([code for code in range(32, 127) if code not in b'"\\'])  # needs no escape


def split_inline(line: bytes) -> list[bytes] | None:
    """Split ``line`` into its arguments; None if its quotes are unbalanced.

    A closing quote has to be followed by a blank or the end of the line.
    """
    args: list[bytes] = []
    i = 0
    n = len(line)
    while True:
        while i < n and line[i] in _BLANKS:
            i += 1
        if i >= n:
            return args
        word = bytearray()
        while i < n and line[i] not in _BLANKS:
            char = line[i]
            if char in (_DOUBLE, _SINGLE):
                end = _quoted(line, i, word)
                if end < 0 or (end < n and line[end] not in _BLANKS):
                    return None
                i = end
            else:
                word.append(char)
                i += 1
        args.append(bytes(word))


def _quoted(line: bytes, start: int, word: bytearray) -> int:
    """Append the contents of the quotes that open at ``start`` to ``word``.

    Returns the position after the closing quote, -1 if there is none.
    """
    quote = line[start]
    i = start + 1
    n = len(line)
    while i < n:
        char = line[i]
        if char == quote:
            return i + 1
        if char == _BACKSLASH and i + 1 < n:
            after = line[i + 1]
            if quote == _SINGLE:
                if after == _SINGLE:
                    word.append(_SINGLE)
                    i += 2
                    continue
            elif after == ord("x") and i + 3 < n and line[i + 2] in _HEX and line[i + 3] in _HEX:
                word.append(int(line[i + 2 : i + 4], 16))
                i += 4
                continue
            else:
                word += _ESCAPES.get(after, line[i + 1 : i + 2])
                i += 2
                continue
        word.append(char)
        i += 1
    return -1


def quote(text: bytes) -> bytes:
    """``text`` in double quotes, escaped so that ``split_inline`` restores it."""
    if not text.translate(None, _PLAIN):
        return b'"%b"' % text
    # MONITOR quotes whole jobs. The codec is fast, and lacks only \a, \b and the quote.
    pieces = [part.split(b"\b") for part in text.split(b"\a")]
    return b'"%b"' % b"\\a".join([b"\\b".join(map(_escape, piece)) for piece in pieces])


def quote_all(words: list[bytes]) -> bytes:
    """All ``words`` as by ``quote``, with spaces between them."""
    if words and not b"".join(words).translate(None, _PLAIN):  # nearly always
        return b'"%b"' % b'" "'.join(words)
    return b" ".join(map(quote, words))


def _escape(text: bytes) -> bytes:
    return text.decode("latin-1").encode("unicode_escape").replace(b'"', b'\\"')
