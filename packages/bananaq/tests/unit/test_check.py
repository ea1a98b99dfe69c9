"""``bananaq-check-aof`` on good, torn and damaged files."""

from pathlib import Path

import pytest

from disque_bananaq import check
from disque_bananaq.core import records

T = 1_700_000_000_000_000

GOOD = [
    records.added(b"q", T, T + 60, b"body", None),
    records.added(b"q", T + 1, T + 60, b"body of another\r\n", b"own id"),
    records.given(b"q", b"g", T, T + 30),
    records.given_again(b"q", b"g", T, 2, T + 40),
    records.put_back(b"q", b"g", T, 2, 0),
    records.done(b"q", b"g", T),
    records.pointer(b"q", b"g", T + 1),
    records.dropped(b"q"),
    records.last(T + 1),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bananaq.aof"
    path.write_bytes(b"".join(GOOD))
    return path


def test_a_good_file_is_valid(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([str(file)]) == 0
    assert "events=2, queues=1, others=7" in capsys.readouterr().out


def test_an_incomplete_end_is_cut_off(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole + GOOD[1][:-20])
    assert check.main([str(file)]) == 1
    assert check.main(["--fix", "--yes", str(file)]) == 0
    assert file.read_bytes() == whole


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"$4\r\nbody\r\n", b"$9999\r\nbody\r\n"),  # a length
        (b"QGIVE", b"QGAVE"),
        (b"%d" % (T + 30), b"%dx" % ((T + 30) // 10)),  # a number
    ],
)
def test_records_after_damage_are_saved(file: Path, old: bytes, new: bytes) -> None:
    whole = file.read_bytes()
    bad = [record for record in GOOD if old in record][:1]
    file.write_bytes(whole.replace(old, new, 1))
    saved = file.with_name("saved.aof")
    assert check.main([str(file)]) == 1
    assert check.main(["--salvage", str(saved), str(file)]) == 0
    assert saved.read_bytes() == b"".join(record for record in GOOD if record not in bad)


def test_a_disque_file_is_invalid(tmp_path: Path) -> None:
    path = tmp_path / "disque.aof"
    path.write_bytes(b"*2\r\n$6\r\nDELJOB\r\n$40\r\nD-00000000-000000000000000000000000-0000\r\n")
    assert check.main([str(path)]) == 1
