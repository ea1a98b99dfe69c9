"""Splitting a typed line into arguments, with redis-cli's quotes and escapes."""

_SPACE = b" \t\n\r\v\f\0"
_ESCAPED = {
    ord("n"): ord("\n"),
    ord("r"): ord("\r"),
    ord("t"): ord("\t"),
    ord("b"): ord("\b"),
    ord("a"): ord("\a"),
}
_HEX = b"0123456789abcdefABCDEF"
_DOUBLE, _SINGLE, _BACKSLASH = b"\"'\\"


def split_arguments(line: bytes) -> list[bytes] | None:
    r"""The arguments of a line; None if its quotes are not balanced.

    Double quotes know `\n \r \t \b \a \xHH` and take any other escaped byte as it is; in single
    quotes only `\'` is special. After a closing quote the argument must end.
    """
    arguments: list[bytes] = []
    position, end = 0, len(line)
    while True:
        while position < end and line[position] in _SPACE:
            position += 1
        if position == end:
            return arguments
        argument = bytearray()
        while position < end and line[position] not in _SPACE:
            byte = line[position]
            position += 1
            if byte not in (_DOUBLE, _SINGLE):
                argument.append(byte)
                continue
            closed = _quoted(line, position, byte, argument)
            if closed is None or (closed < end and line[closed] not in _SPACE):
                return None
            position = closed
        arguments.append(bytes(argument))


def _quoted(line: bytes, position: int, mark: int, argument: bytearray) -> int | None:
    """Append what is quoted; returns the position behind the closing mark, None without one."""
    end = len(line)
    while position < end:
        byte = line[position]
        following = line[position + 1] if position + 1 < end else None
        if byte == mark:
            return position + 1
        if byte != _BACKSLASH or following is None or (mark == _SINGLE and following != _SINGLE):
            argument.append(byte)
            position += 1
            continue
        digits = line[position + 2 : position + 4]
        if mark == _SINGLE:
            argument.append(_SINGLE)
            position += 2
        elif following == ord("x") and len(digits) == 2 and all(d in _HEX for d in digits):
            argument.append(int(digits, 16))
            position += 4
        else:
            argument.append(_ESCAPED.get(following, following))
            position += 2
    return None
