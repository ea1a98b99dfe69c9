"""Parses numbers as clients write them."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
_ZERO: Final = ord("0")


def parse_int(text: bytes) -> int | None:
    """Return the signed 64-bit integer that ``text`` spells, or None.

    The rules are those of C's ``strtoll`` in base 10 for the whole string, as Disque uses it: an
    optional sign and digits, nothing before or after; an empty string is 0.
    """
    length: i64 = len(text)
    if 0 < length <= 18:
        i: i64 = 0
        short: i64 = 0
        while i < length:
            digit: i64 = text[i] - _ZERO
            if not 0 <= digit <= 9:
                break
            short = short * 10 + digit
            i += 1
        if i == length:
            return short
    if text.isdigit():
        # More than 19 digits may still be a small number ("000…1"). Python is slow with thousands
        # of digits, or refuses them, so strip the zeros first.
        if len(text) > 18:
            text = text.lstrip(b"0")
            if len(text) > 19:
                return None
            value = int(text) if text else 0
            return value if value <= INT64_MAX else None
        return int(text)
    if not text:
        return 0
    sign = text[0]
    digits = text[1:]
    if sign not in b"+-" or not digits.isdigit():
        return None
    digits = digits.lstrip(b"0")
    if len(digits) > 19:
        return None
    value = int(digits) if digits else 0
    if sign == 45:
        value = -value
    return value if INT64_MIN <= value <= INT64_MAX else None


def parse_ms(text: bytes) -> int:
    """Return the ms in a time in seconds, with or without decimals; negative: it is none."""
    seconds = parse_int(text)
    if seconds is not None:
        return seconds * 1000  # nearly always
    whole, _, decimals = text.partition(b".")
    if not (whole.isdigit() and decimals.isdigit()):
        return -1
    seconds = parse_int(whole)
    if seconds is None:
        return -1
    return seconds * 1000 + (int(decimals[:4].ljust(4, b"0")) + 5) // 10
