"""Jobs that were loaded without a progress file lie on disk until their retry time is over."""

from io import BytesIO
from pathlib import Path

from disque_trio.aof.loader import Loader
from disque_trio.node.progress_file import _NewFile
from disque_trio.protocol.progress import MAGIC, WAITING, ProgressReader
from tests.support.node_bench import Bench
from tests.support.paged import PagedBench
from tests.unit.node.test_metrics import figures_of, scrape

JOBS = 400
RETRY = 50


class Started(PagedBench):
    """A node that has loaded what ``before`` wrote; ``found`` says what became of the jobs."""

    def __init__(self, before: Bench, path: Path, found: ProgressReader | None = None) -> None:
        super().__init__(above=1, seed=7, id=before.node.id, jitter=0)
        path.write_bytes(b"".join(before.node.journal))
        self.pages.seed = 54321
        self.now = self.node.now = before.now
        if found is not None:
            self.node.recovery.begin(found, False)
        for _ in Loader(str(path), self.node, False).steps():
            self.turn()
        self.node.recovery.finish()
        self.node.journal = list(before.node.journal)
        self.node.journaling = True
        for _ in range(JOBS // 64 + 1):
            self.settle()

    @property
    def waiting(self) -> int:
        """How many jobs wait, in memory and on disk."""
        count = int(self.info("jobs")["jobs_waiting_retry"])
        full = self("QSTAT", "q", "FULL")
        assert full is None or self.fields("QSTAT", "q", "FULL")[b"jobs-waiting"] == count
        return count

    def note_all(self, path: Path) -> ProgressReader:
        """What a new progress file says."""
        new = _NewFile(str(path))
        new.append(MAGIC)
        while not new.complete:
            new.append_jobs(self.node, 50)
        new.take_name()
        found = ProgressReader()
        found.read(BytesIO(path.read_bytes()))
        return found


def filled(*options: str | int) -> tuple[Bench, list[bytes]]:
    bench = Bench(jitter=0)
    bench.node.journaling = True
    ids = []
    for number in range(JOBS):
        ids.append(bench.add("q", f"body{number}", "RETRY", RETRY, *options))
        bench.advance(0.001)
    return bench, ids


def taken(bench: PagedBench) -> list[bytes]:
    found = []
    while (id := bench.get()) is not None:
        found.append(id)
        assert bench("ACKJOB", id) == 1
        bench.settle()
    return found


def test_they_are_queued_after_their_retry_time(tmp_path: Path) -> None:
    before, ids = filled()
    bench = Started(before, tmp_path / "aof")
    assert bench.pages.jobs == JOBS
    assert bench.waiting == JOBS
    assert bench.node.held() == JOBS
    bench.advance(RETRY - 2)
    assert bench.get() is None
    assert bench.pages.jobs == JOBS
    bench.advance(30)
    assert bench.waiting == 0
    assert bench.number_queued() == JOBS
    assert bench.pages.jobs > JOBS - 50
    assert taken(bench) == ids


def test_few_come_back_at_a_time(tmp_path: Path) -> None:
    before, _ = filled()
    bench = Started(before, tmp_path / "aof")
    most = 0
    for _ in range(7_000):
        bench.advance(0.01)
        most = max(most, bench.node.store.jobs.count)
    assert bench.number_queued() == JOBS
    assert most < 60
    bench = Started(before, tmp_path / "aof")
    bench.node.paging.set_above(None)
    bench.advance(RETRY + 1)
    assert bench.number_queued() == JOBS
    assert bench.pages.jobs == 0


def test_commands_work_on_them(tmp_path: Path) -> None:
    before, ids = filled()
    bench = Started(before, tmp_path / "aof")
    assert bench("ACKJOB", *ids[:10]) == 10
    assert bench("DELJOB", *ids[10:20]) == 10
    assert bench("CANCEL", *ids[20:30]) == 10
    assert bench.waiting == JOBS - 30
    assert bench("ENQUEUE", *ids[30:40]) == 10
    assert bench.number_queued() == 10
    assert bench.waiting == JOBS - 40
    assert bench.show(ids[50])[b"state"] == b"active"
    assert bench("WORKING", ids[51]) == RETRY
    assert bench("UPDATEJOB", ids[52], "BODY", "new") == b"OK"
    found: list[object] = []
    cursor: object = b"0"
    while True:
        cursor, more = bench("JSCAN", cursor, "STATE", "active")
        found += more
        if cursor == b"0":
            break
    assert sorted(found) == sorted(ids[40:])
    bench.advance(2 * RETRY)
    assert bench.waiting == 0
    assert sorted(taken(bench)) == sorted(ids[30:])


def test_after_another_kill_they_wait_on(tmp_path: Path) -> None:
    before, ids = filled()
    first = Started(before, tmp_path / "aof")
    first.advance(RETRY // 2)
    assert first("ACKJOB", ids[7]) == 1
    found = first.note_all(tmp_path / "progress")
    assert len(found.jobs) == JOBS - 1
    assert all(found.jobs[id].flags & WAITING for id in found.jobs)
    bench = Started(first, tmp_path / "aof", found)
    assert bench.pages.jobs == bench.waiting == JOBS - 1
    bench.advance(RETRY // 2 - 2)
    assert bench.get() is None
    bench.advance(30)
    assert taken(bench) == [*ids[:7], *ids[8:]]


def test_those_whose_time_was_over_before_the_start_go_to_disk_too(tmp_path: Path) -> None:
    before, ids = filled()
    first = Started(before, tmp_path / "aof")
    found = first.note_all(tmp_path / "progress")
    first.now += 100_000
    bench = Started(first, tmp_path / "aof", found)
    assert bench.pages.jobs == bench.waiting == JOBS
    bench.advance(30)
    assert bench.waiting == 0
    assert bench.pages.jobs > JOBS - 50
    assert taken(bench) == ids


def test_the_metrics_have_them(tmp_path: Path) -> None:
    before, _ = filled()
    bench = Started(before, tmp_path / "aof")
    found = scrape(figures_of(bench))
    assert bench.pages.jobs == JOBS
    assert found["disque_jobs"][("waiting-retry",)] == JOBS
    assert found["disque_jobs_waiting_retry"][()] == JOBS
    assert found["disque_registered_jobs"][()] == JOBS


def test_files_that_are_damaged_are_made_again(tmp_path: Path) -> None:
    before, ids = filled()
    bench = Started(before, tmp_path / "aof")
    number = sorted(bench.files)[3]
    bench.files[number] = bench.files[number][:50]
    del bench.files[sorted(bench.files)[7]]
    bench.advance(3 * RETRY)
    assert len(bench.damaged) == 2
    assert bench.waiting == 0
    assert sorted(taken(bench)) == sorted(ids)
    assert bench.pages.lost == 0


def test_they_expire(tmp_path: Path) -> None:
    before, _ = filled("TTL", 30)
    bench = Started(before, tmp_path / "aof")
    assert bench.waiting == JOBS
    bench.advance(35)
    assert bench.waiting == bench.node.held() == 0
