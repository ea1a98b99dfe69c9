"""A compacted append-only file loads to the same jobs, and is as small as possible."""

import io
import os
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.aof.compact import Counts, compact
from disque_trio.aof.compaction import Compaction
from disque_trio.aof.disk import Disk
from disque_trio.aof.format import AofError, deljob, loadjob
from disque_trio.aof.loader import Loader
from disque_trio.aof.places import Places
from disque_trio.protocol.serialjob import JobWriter, paused_queue
from tests.support.harness import HANG_SECONDS
from tests.support.node_bench import Bench

NOW = 1_700_000_000


def job_id(number: int) -> bytes:
    return b"D-dcb833cf-%024d-05a1" % number


def record(number: int, body: bytes = b"body", etime: int = NOW + 1000) -> bytes:
    """Return the LOADJOB record of a queued job."""
    times = (etime, (NOW - 10) * 1_000_000_000 // 1000, 0, 300, 0, 0)
    return loadjob(JobWriter().encode(job_id(number), 2, 0, 1, *times, b"q", body, b"a" * 40))


def compacted(data: bytes, upto: int | None = None) -> bytes:
    with tempfile.TemporaryFile() as out:
        counts = compact(io.BytesIO(data), len(data) if upto is None else upto, out, NOW)
        out.seek(0)
        result = out.read()
    assert counts.size == len(result)
    return result


def jobs_of(data: bytes, directory: Path) -> dict[bytes, tuple[bytes, ...]]:
    """Load ``data`` into a node; return its jobs and its paused queues."""
    path = directory / "aof"
    path.write_bytes(data)
    bench = Bench()
    bench.now = bench.node.now = NOW * 1000
    for _ in Loader(str(path), bench.node, True).steps():
        pass
    paused = {q.name: (b"%d" % q.paused,) for q in bench.node.queues.by_name.values() if q.paused}
    return paused | {
        job.id: (job.queue, job.body or b"", b"%d %d" % (job.etime, job.state))
        for shard in bench.node.store.jobs.shards
        for job in shard.values()
    }


histories = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.sampled_from(["add", "add", "end", "other case", "several", "pause"]),
        st.binary(max_size=20),
        st.sampled_from([NOW - 1, NOW, NOW + 1, NOW + 500]),
    ),
    max_size=40,
)


def written(history: list[tuple[int, str, bytes, int]]) -> list[bytes]:
    records = []
    for number, what, body, etime in history:
        if what == "add":
            records.append(record(number, body, etime))
        elif what == "end":
            records.append(deljob(job_id(number)))
        elif what == "other case":
            records.append(deljob(job_id(number)).replace(b"DELJOB", b"delJob"))
        elif what == "pause":
            records.append(paused_queue(b"q%d" % number, etime % 4))
        else:
            two = b"$40\r\n%b\r\n" * 2 % (job_id(number), job_id(number + 1))
            records.append(b"*3\r\n$6\r\nDELJOB\r\n" + two)
    return records


@given(histories, st.data())
def test_what_is_compacted_loads_to_the_same_jobs_also_with_what_was_appended_since(
    history: list[tuple[int, str, bytes, int]], data: st.DataObject
) -> None:
    records = written(history)
    here = data.draw(st.integers(0, len(records)))
    before, since = b"".join(records[:here]), b"".join(records[here:])
    result = compacted(before + since, len(before))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        expected = jobs_of(before + since, directory)
        assert jobs_of(result + since, directory) == expected
        reader = hiredis.Reader()
        reader.feed(result)
        for _ in jobs_of(before, directory):
            assert reader.gets()[0] in (b"LOADJOB", b"PAUSE")
        assert reader.gets() is False


def test_ended_and_expired_jobs_go_the_others_stay_as_they_are_in_their_order() -> None:
    parts = [record(1), record(2, etime=NOW), record(3, b"x" * 3_000_000), deljob(job_id(1))]
    parts += [record(4), record(5), deljob(job_id(5)), deljob(job_id(9)), record(1, b"again")]
    assert compacted(b"".join(parts)) == parts[2] + parts[4] + parts[8]


def test_a_file_without_live_jobs_becomes_empty() -> None:
    assert compacted(b"") == b""
    assert compacted(record(1) + deljob(job_id(1))) == b""


def test_records_after_the_given_end_are_ignored() -> None:
    good = record(1)
    assert compacted(good + record(2)[:50], len(good)) == good
    assert compacted(good + b"no record", len(good)) == good


@pytest.mark.parametrize(
    ("data", "upto", "offset"),
    [
        (record(1) + record(2), len(record(1)) + 3, 2 * len(record(1))),
        (record(1), len(record(1)) + 3, len(record(1))),
        (record(1) + b"*1\r\n$4\r\nPING\r\n", None, len(record(1))),
        (record(1) + record(2)[:-5], None, len(record(1))),
        (record(1) + loadjob(b"short"), None, len(record(1))),
        (record(1) + record(2).replace(b"D-dcb", b"X-dcb"), None, len(record(1))),
        (record(1) + deljob(b"X" * 40), None, len(record(1))),
    ],
)
def test_damage_ends_it_with_the_offset(data: bytes, upto: int | None, offset: int) -> None:
    with pytest.raises(AofError) as caught:
        compacted(data, upto)
    assert caught.value.offset == offset


def test_it_does_not_hold_the_jobs_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "aof"
    with path.open("wb") as file:
        for number in range(3000):
            file.write(record(number, bytes(20_000)))
    with path.open("rb") as file, (tmp_path / "out").open("wb") as out:
        tracemalloc.start()
        compact(file, path.stat().st_size, out, NOW)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 10_000_000 < path.stat().st_size == (tmp_path / "out").stat().st_size


# ---- in a process of its own --------------------------------------------------------------------


def run(
    path: Path, upto: int, out: Path, node: int | None = None
) -> "subprocess.CompletedProcess[str]":
    numbers = str(NOW), str(os.getpid() if node is None else node)
    return subprocess.run(
        [sys.executable, "-m", "disque_trio.aof.compact", path, str(upto), out, *numbers],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def test_the_process_reports_its_result(tmp_path: Path) -> None:
    data = record(1) + record(2) + deljob(job_id(1))
    (tmp_path / "aof").write_bytes(data)
    done = run(tmp_path / "aof", len(data), tmp_path / "out")
    counts = Counts(3, 1, len(record(2)))
    assert done.stdout == "records={} jobs={} bytes={}\n".format(*counts)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out").read_bytes() == record(2)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("data", [record(1)[:-1], b"garbage", None])
def test_the_process_leaves_nothing_when_it_fails(tmp_path: Path, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / "aof").write_bytes(data)
    done = run(tmp_path / "aof", len(data or b"x"), tmp_path / "out")
    assert done.returncode == 1
    assert done.stdout.strip()
    assert done.stderr == ""
    assert not (tmp_path / "out").exists()


def test_the_process_leaves_nothing_when_the_node_ended_before_it_began(tmp_path: Path) -> None:
    (tmp_path / "aof").write_bytes(record(1))
    done = run(tmp_path / "aof", len(record(1)), tmp_path / "out", os.getppid())
    assert (done.returncode, done.stdout) == (1, "the node has ended\n")
    assert not (tmp_path / "out").exists()


async def test_a_process_that_is_killed_is_told_by_its_status(tmp_path: Path) -> None:
    (tmp_path / "aof").write_bytes(record(1))
    compaction = Compaction(Disk(), str(tmp_path / "aof"), len(record(1)), NOW)
    compaction._command = ["sh", "-c", "kill -9 $$"]
    try:
        with pytest.raises(OSError, match="ended with status -9"):
            await compaction.run()
    finally:
        compaction.abandon()


def test_it_needs_neither_trio_nor_the_server() -> None:
    code = (
        "import sys, disque_trio.aof.compact\n"
        "print([m for m in sys.modules if m in ('trio', 'disque_trio.node.server', 'hiredis')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@given(
    st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.sampled_from([1, 300, 5 << 20]))),
    st.sampled_from([10, 100_000]),
)
def test_places_are_those_of_a_dict(changes: list[tuple[int, bool, int]], scale: int) -> None:
    expected: dict[bytes, tuple[int, int]] = {}
    end = 0
    places = Places((len(changes) + 1) * (5 << 20) * scale)
    for number, added, length in changes:
        id = job_id(number)
        if added:
            places.add(id, end, length)
            expected.setdefault(id, (end, length))
            end += length * scale
        else:
            places.drop(id)
            expected.pop(id, None)
    assert places.count == len(expected)
    assert list(places.in_order()) == sorted(expected.values())


def test_a_place_takes_little_memory() -> None:
    count = 50_000
    tracemalloc.start()
    places = Places(250 * count)
    for number in range(count):
        places.add(job_id(number), 250 * number, 250)
    assert sum(1 for _ in places.in_order()) == count
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * count
