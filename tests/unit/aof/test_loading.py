"""How a node loads its file: what INFO says meanwhile, and which damaged ends are cut off."""

from pathlib import Path

import pytest

from disque_trio.aof.check import main
from disque_trio.aof.loader import RECORDS_A_STEP
from disque_trio.aof.loading import LoadError
from disque_trio.aof.persistence import Persistence
from disque_trio.aof.scanner import Scanner
from disque_trio.config import Config
from disque_trio.process.logs import Logging
from disque_trio.process.systemd import Notifier
from tests.support.node_bench import Bench


async def test_info_says_how_much_of_the_file_is_loaded_until_all_of_it_is(tmp_path: Path) -> None:
    old = Bench()
    old.node.journaling = True
    for _ in range(2 * RECORDS_A_STEP):
        old.add()
    file = tmp_path / "aof"
    file.write_bytes(b"".join(old.node.journal))
    logging = Logging(path=str(tmp_path / "log"))
    config = Config({"appendonly": True, "appendfilename": str(file)})
    persistence = Persistence(Bench().node, config, logging.log)
    told: list[dict[str, str | int | float]] = []

    def stopped() -> bool:
        told.append(persistence.loading.info())
        return False

    assert await persistence.loading.load(False, Notifier({}), stopped) == 2 * RECORDS_A_STEP
    assert list(persistence.loading.info()) == ["aof_last_load_time_sec"]
    size = file.stat().st_size
    assert {fields["loading_total_bytes"] for fields in told} == {size}
    loaded = [int(fields["loading_loaded_bytes"]) for fields in told]
    assert loaded == sorted(loaded)
    assert 0 < loaded[0] < loaded[-1] == size
    for fields, count in zip(told, loaded, strict=True):
        assert fields["loading_loaded_perc"] == f"{100 * count / size:.2f}"
    assert told[-1]["loading_eta_seconds"] == 0
    persistence.close()
    logging.close()


async def held_after_loading(file: Path) -> int:
    """The number of jobs that a node has loaded from the file. Raises LoadError."""
    logging = Logging(path=str(file.with_name("log")))
    config = Config({"appendonly": True, "appendfilename": str(file)})
    persistence = Persistence(Bench().node, config, logging.log)
    try:
        return await persistence.loading.load(False, Notifier({}), lambda: False)
    finally:
        persistence.close()
        logging.close()


def records(count: int) -> list[bytes]:
    bench = Bench()
    bench.node.journaling = True
    for n in range(count):
        bench.add("q", f"body {n}")
    return [*bench.node.journal]


@pytest.mark.parametrize("zeros", [1, 7, 4096, 3 << 20])
@pytest.mark.parametrize("torn", [0, 1, 5, 30, 60, 150])
async def test_a_tail_of_zeros_is_cut_off_with_what_was_torn(
    tmp_path: Path, torn: int, zeros: int
) -> None:
    file = tmp_path / "aof"
    first, second, third = records(3)
    file.write_bytes(first + second + third[:torn] + bytes(zeros))
    assert main([str(file)]) == 1
    assert main(["--fix", "--yes", str(file)]) == 0
    assert file.read_bytes() == first + second
    file.write_bytes(first + second + third[:torn] + bytes(zeros))
    assert await held_after_loading(file) == 2
    assert main([str(file)]) == 0


async def test_zeros_before_a_good_record_or_in_the_last_one_stop_the_start(tmp_path: Path) -> None:
    file = tmp_path / "aof"
    first, second, third = records(3)
    hole = second[:40] + bytes(len(second) - 40)
    for damaged in (
        first + hole + third,
        first + bytes(4096) + third,
        first + second + bytes(9) + b"\r\n",
    ):
        file.write_bytes(damaged)
        with pytest.raises(LoadError, match=f"offset {len(first)}|offset {len(first + second)}"):
            await held_after_loading(file)
        assert file.read_bytes() == damaged


def test_only_a_job_that_is_longer_than_the_rest_of_the_file_passes_for_a_torn_one(
    tmp_path: Path,
) -> None:
    (job,) = records(1)
    file = tmp_path / "aof"
    for cut in (0, 1):
        file.write_bytes(job[: len(job) - cut])
        with file.open("rb", buffering=0) as opened:
            assert Scanner(opened).begins_whole(0) is (cut > 0)


def test_who_finds_a_torn_end_is_told_how_to_repair_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = records(2)
    file = tmp_path / "aof"
    file.write_bytes(first + second[:50])
    assert main([str(file)]) == 1
    assert "To repair it: " in capsys.readouterr().out
    assert main(["--fix", "--yes", str(file)]) == 0
    assert "To repair it: " not in capsys.readouterr().out


async def test_what_a_rewrite_left_that_was_killed_is_removed_and_nothing_else(
    tmp_path: Path,
) -> None:
    file = tmp_path / "aof"
    left = file.with_name("aof.rewrite-12-3")
    others = [file.with_name(f"aof{end}") for end in (".rewrite-12", ".rewrite-1-2.bak", ".old")]
    for path in (left, *others):
        path.write_bytes(b"x")
    logging = Logging(path=str(tmp_path / "log"))
    config = Config({"appendonly": True, "appendfilename": str(file)})
    persistence = Persistence(Bench().node, config, logging.log)
    await persistence.loading.load(False, Notifier({}), lambda: False)
    persistence.file.open()
    persistence.close()
    logging.close()
    assert not left.exists()
    assert all(path.exists() for path in others)
