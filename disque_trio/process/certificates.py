"""Reads the validity period of a certificate: Python's ssl only tells that of a peer's."""

from __future__ import annotations

import calendar
import ssl
import time
from typing import Final

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


class CertificateError(ValueError):
    """The text contains no readable certificate."""


def validity(text: str) -> tuple[float, float]:
    """The first and the last second (since the epoch) of the validity of the first certificate in a
    PEM file. Raises ``CertificateError``."""
    begin = text.find(_BEGIN)
    end = text.find(_END, begin)
    if begin < 0 or end < 0:
        raise CertificateError("there is no certificate")
    try:
        der = ssl.PEM_cert_to_DER_cert(text[begin : end + len(_END)])
        certificate = _Reader(_Reader(der).take(_SEQUENCE))
        signed = _Reader(certificate.take(_SEQUENCE))
        if signed.kind == _VERSION:
            signed.skip()
        for _ in range(3):  # serial number, algorithm, issuer
            signed.skip()
        dates = _Reader(signed.take(_SEQUENCE))
        return dates.take_time(), dates.take_time()
    except (IndexError, ValueError) as problem:
        raise CertificateError(f"the certificate cannot be read: {problem}") from problem


class _Reader:
    """Reads consecutive DER values. Raises ``IndexError`` or ``ValueError`` for invalid ones."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def kind(self) -> int:
        """The tag of the next value."""
        return self._data[self._at]

    def skip(self) -> bytes:
        """Skip the next value, and return its contents."""
        data = self._data
        size = data[self._at + 1]
        start = self._at + 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[start : start + count])
            start += count
        end = start + size
        if end > len(data):
            raise ValueError("it is cut off")
        self._at = end
        return data[start:end]

    def take(self, kind: int) -> bytes:
        """Return the contents of the next value, which has to be of this kind."""
        if self.kind != kind:
            raise ValueError(f"there is {self.kind:#x} where {kind:#x} should be")
        return self.skip()

    def take_time(self) -> float:
        """Return the time in the next value, in s since the epoch."""
        kind = self.kind
        text = self.skip().decode("ascii")
        if kind == _UTC_TIME:
            text = ("20" if text[:2] < "50" else "19") + text
        return calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ"))
