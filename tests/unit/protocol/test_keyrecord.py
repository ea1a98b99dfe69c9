"""The record of a key of ADDJOB UNIQUE."""

from io import BytesIO

import pytest

from disque_trio.aof.format import RecordReader
from disque_trio.protocol.keyrecord import ADDED, CONFIRMED, PENDING, KeyRecord, read_key

ID = b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1"


@pytest.mark.parametrize("lasts", [False, True])
@pytest.mark.parametrize("state", [PENDING, CONFIRMED, ADDED])
def test_a_record_is_read_back(state: int, lasts: bool) -> None:
    for until in (0, 1_700_000_000_000):
        record = KeyRecord(b"q\r\n", b"\0$3\r\n", ID, until, state, lasts)
        (words,) = RecordReader(BytesIO(record.pack()))
        assert read_key(words) == record


@pytest.mark.parametrize(
    "words",
    [
        [b"UNIQUE", b"q", b"k", ID, b"1"],
        [b"UNIQUES", b"q", b"k", ID, b"1", b"added"],
        [b"UNIQUE", b"q", b"k", ID[:-1], b"1", b"added"],
        [b"UNIQUE", b"q", b"k", ID, b"-1", b"added"],
        [b"UNIQUE", b"q", b"k", ID, b"", b"added"],
        [b"UNIQUE", b"q", b"k", ID, b"9" * 30, b"added"],
        [b"UNIQUE", b"q", b"k", ID, b"1", b""],
        [b"UNIQUE", b"q", b"k", ID, b"1", b"-for"],
        [b"UNIQUE", b"q", b"k", ID, b"1", b"gone"],
    ],
)
def test_anything_else_is_not_a_record(words: list[bytes]) -> None:
    assert read_key(words) is None
