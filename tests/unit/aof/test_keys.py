"""Keys of ADDJOB UNIQUE in append-only files, as the AOF tools see them."""

from pathlib import Path

import pytest

from disque_trio.aof.check import main as check_aof
from tests.support.node_bench import Bench


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with two finished jobs and a record of the key of each."""
    bench = Bench()
    bench.node.journaling = True
    for key in ("k", "l"):
        bench("ACKJOB", bench.add("q", "body", "UNIQUE", key, "FOR", 10))
    path = tmp_path / "aof"
    path.write_bytes(b"".join(bench.node.journal))
    return path


def test_the_check_counts_keys(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_aof([str(path)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Good records: jobs=2, queues=1, deletes=2, keys=2, trailers=2\n")


def test_keys_behind_damage_are_found_and_salvaged(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = path.read_bytes()
    second = data.rindex(b"*6\r\n$6\r\nUNIQUE\r\n")
    path.write_bytes(b"damage" + data[second:])
    assert check_aof([str(path)]) == 1
    assert "among them good records: jobs=0, deletes=1, keys=1." in capsys.readouterr().out
    out = path.with_name("out")
    assert check_aof(["--salvage", str(out), str(path)]) == 0
    assert out.read_bytes() == data[second:]


def test_a_damaged_key_is_damage(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"added-for", b"added-4or"))
    assert check_aof([str(path)]) == 1
