"""The process that writes the event log, driven through its pipes."""

import errno
import gzip
import json
import marshal
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.eventlog.child import HEAD, Child
from disque_trio.eventlog.closing import Closer, Retention
from disque_trio.eventlog.schema import Event
from disque_trio.eventlog.segments import Naming, Segment, create
from tests.support.harness import wait_until

NODE = "0123456789abcdef0123456789abcdef01234567"
NOW = 1_795_290_000_000


class Driver:
    """A ``Child`` in a thread, with the clock of the test and the ends of its pipes."""

    def __init__(self, directory: Path, size: int, age: int, compress: bool = False) -> None:
        self.now = NOW
        self.directory = directory
        self.complete: bool | None = None
        self.troubles: list[str] = []
        source, self._input = os.pipe()
        self._answers, answers = os.pipe()
        os.set_blocking(self._answers, False)
        self._ends = (source, answers)
        naming = Naming(NODE)
        policy = Retention(compress)
        self.closer = Closer(directory, naming, policy, lambda: 0.0, self.troubles.append)
        self.child = Child(
            NODE, directory, size, age, self.closer, source, answers, lambda: self.now
        )
        self._thread = threading.Thread(target=self._run)
        self._said = b""
        self._open = True

    def _run(self) -> None:
        self.complete = self.child.run()
        self.closer.finish()

    def start(self) -> None:
        self._thread.start()

    def raw(self, data: bytes) -> None:
        os.write(self._input, data)

    def send(self, *numbers: int) -> None:
        self.raw(batch(*numbers))

    def said(self) -> list[str]:
        try:
            while data := os.read(self._answers, 65536):
                self._said += data
        except BlockingIOError:
            pass
        return self._said.decode().splitlines()

    def confirmed(self, batches: int) -> bool:
        return any(line.startswith(f"ok {batches} ") for line in self.said())

    def hang_up(self) -> None:
        if self._open:
            self._open = False
            os.close(self._input)

    def end(self) -> None:
        """End the node; wait for the child to end, too."""
        self.hang_up()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self.end()
        for fd in (*self._ends, self._answers):
            os.close(fd)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    def ids(self) -> list[int]:
        """Return the ids in the closed files, in order."""
        lines: list[bytes] = []
        for name in self.files():
            if name.endswith(".open"):  # may be renamed at any time
                continue
            data = (self.directory / name).read_bytes()
            lines += (gzip.decompress(data) if name.endswith(".gz") else data).splitlines()
        return [int(event["id"][2:]) for event in map(json.loads, lines) if "id" in event]

    def heads(self) -> list[dict[str, object]]:
        """Return the first lines of the closed files."""
        firsts = [(self.directory / name).read_bytes().split(b"\n", 1)[0] for name in self.files()]
        heads = [json.loads(line) for line in firsts]
        assert {head["event"] for head in heads} == {"segment"}
        return [{key: head[key] for key in head.keys() & KEYS} for head in heads]


KEYS = {"name", "after", "events"}


def batch(*numbers: int) -> bytes:
    events: list[Event] = [(NOW, "queued", b"q", "add"), *(b"D-%08d" % n for n in numbers)]
    data = marshal.dumps(events)
    return HEAD.pack(len(data)) + data


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    made: list[Driver] = []
    yield made
    for driver in made:
        driver.close()


def drive(
    drivers: list[Driver],
    directory: Path,
    size: int = 1 << 20,
    age: int = 0,
    compress: bool = False,
) -> Driver:
    driver = Driver(directory, size, age, compress)
    drivers.append(driver)
    driver.start()
    return driver


def test_the_end_of_the_node_closes_the_file(tmp_path: Path, drivers: list[Driver]) -> None:
    driver = drive(drivers, tmp_path)
    driver.send(1, 2)
    wait_until(lambda: driver.confirmed(1))
    assert driver.files() == [f"events-01234567-{NOW}-0.jsonl.open"]
    driver.send(3)
    driver.end()
    assert driver.files() == [f"events-01234567-{NOW}-0.jsonl"]
    assert driver.ids() == [1, 2, 3]
    assert driver.complete


def test_an_incomplete_batch_at_the_end_is_ignored(tmp_path: Path, drivers: list[Driver]) -> None:
    driver = drive(drivers, tmp_path)
    driver.raw(batch(1) + batch(2)[:-1])
    driver.end()
    assert driver.ids() == [1]


def test_a_batch_may_come_byte_by_byte(tmp_path: Path, drivers: list[Driver]) -> None:
    driver = drive(drivers, tmp_path)
    for byte in batch(1) + batch(2):
        driver.raw(bytes([byte]))
    driver.end()
    assert driver.ids() == [1, 2]


def test_a_node_without_events_leaves_no_file(tmp_path: Path, drivers: list[Driver]) -> None:
    drive(drivers, tmp_path).end()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("compress", [False, True])
def test_a_file_of_maximum_size_is_closed_and_the_next_begins(
    tmp_path: Path, drivers: list[Driver], compress: bool
) -> None:
    driver = drive(drivers, tmp_path, size=600, compress=compress)
    for n in range(10):
        driver.send(n)  # a line has some 140 bytes, the first one of a file up to 250
    wait_until(lambda: len([name for name in driver.files() if ".open" not in name]) == 3)
    driver.end()
    assert len(driver.files()) == 3
    assert driver.ids() == list(range(10))
    assert all(name.endswith(".jsonl.gz" if compress else ".jsonl") for name in driver.files())


def test_each_file_has_its_own_name_and_that_of_the_previous_one(
    tmp_path: Path, drivers: list[Driver]
) -> None:
    driver = drive(drivers, tmp_path, size=500)
    driver.send(1, 2, 3, 4)
    driver.send(5, 6, 7)
    wait_until(lambda: driver.confirmed(2))
    driver.end()
    first, second = [f"events-01234567-{NOW}-{number}.jsonl" for number in range(2)]
    assert driver.heads() == [{"name": first}, {"name": second, "after": first, "events": 4}]
    # Another process finds the previous file, but does not know how many lines it has.
    driver = drive(drivers, tmp_path)
    driver.send(8)
    driver.end()
    third = f"events-01234567-{NOW}-2.jsonl"
    assert driver.heads()[2:] == [{"name": third, "after": second}]
    assert driver.ids() == list(range(1, 9))


def test_a_file_of_maximum_age_is_closed_at_the_next_event(
    tmp_path: Path, drivers: list[Driver]
) -> None:
    driver = drive(drivers, tmp_path, age=60_000)
    driver.send(1)
    wait_until(lambda: driver.confirmed(1))
    driver.now += 59_999
    driver.send(2)
    wait_until(lambda: driver.confirmed(2))
    assert driver.ids() == []
    driver.now += 1
    driver.send(3)  # just before or after the file is closed
    wait_until(lambda: driver.ids()[:2] == [1, 2])
    driver.send(4)
    driver.end()
    assert driver.ids() == [1, 2, 3, 4]
    assert [int(name.split("-")[2]) for name in driver.files()] == [NOW, NOW + 60_000]


def test_a_file_of_maximum_age_is_closed_without_an_event(
    tmp_path: Path, drivers: list[Driver]
) -> None:
    driver = drive(drivers, tmp_path, age=50)
    driver.send(1)
    wait_until(lambda: driver.confirmed(1))
    driver.now += 50
    wait_until(lambda: driver.ids() == [1])


def test_while_nothing_happens_there_is_an_open_file_that_is_as_new_as_it_may_be_old(
    tmp_path: Path, drivers: list[Driver]
) -> None:
    driver = drive(drivers, tmp_path, age=50)
    driver.send(1)
    wait_until(lambda: driver.confirmed(1))
    driver.now += 50
    wait_until(
        lambda: (
            driver.files()
            == [f"events-01234567-{NOW + 50 * n}-0.jsonl" + ".open" * n for n in (0, 1)]
        )
    )
    still = tmp_path / driver.files()[1]
    wait_until(lambda: still.stat().st_size)
    os.utime(still, (0, 0))
    driver.now += 50
    wait_until(lambda: still.stat().st_mtime > 0)
    driver.send(2)
    wait_until(lambda: driver.confirmed(2))
    driver.now += 50
    wait_until(lambda: driver.ids() == [1, 2])
    driver.end()  # and one without events is removed
    assert len(driver.files()) == 2


def test_the_first_lines_have_what_the_node_says_about_itself(
    tmp_path: Path, drivers: list[Driver]
) -> None:
    driver = drive(drivers, tmp_path, size=500)
    facts = marshal.dumps({"run": "ab12", "nodes": [NODE]})
    driver.raw(HEAD.pack(len(facts)) + facts)
    driver.send(1, 2, 3, 4)
    driver.send(5, 6, 7)
    wait_until(lambda: driver.confirmed(2))
    driver.end()
    firsts = [(tmp_path / name).read_text().splitlines()[0] for name in driver.files()]
    assert [(head["run"], head["nodes"]) for head in map(json.loads, firsts)] == [
        ("ab12", [NODE])
    ] * 2


def test_a_clock_that_is_set_back_does_not_keep_a_file_open(
    tmp_path: Path, drivers: list[Driver]
) -> None:
    driver = drive(drivers, tmp_path, age=60_000)
    driver.send(1)
    wait_until(lambda: driver.confirmed(1))
    driver.now -= 3_600_000
    driver.send(2)
    wait_until(lambda: sorted(driver.ids()) == [1, 2])


def test_the_node_knows_how_much_of_which_file_is_valid(
    tmp_path: Path, drivers: list[Driver]
) -> None:
    driver = drive(drivers, tmp_path)
    for n in range(3):
        driver.send(n)
    wait_until(lambda: driver.confirmed(3))
    name = f"events-01234567-{NOW}-0.jsonl"
    head, *lines = (tmp_path / f"{name}.open").read_bytes().splitlines(True)
    sizes = [0, *(len(head) + n * len(lines[0]) for n in range(1, 4))]
    assert driver.said() == [f"ok {n} {n} {sizes[n]} {name}" for n in range(4)]


def test_a_failing_disk_is_reported_once_and_nothing_is_lost_when_it_works_again(
    tmp_path: Path, drivers: list[Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite
    full = threading.Event()

    def part_of_it(fd: int, data: bytes, offset: int) -> int:
        if not full.is_set():
            return write(fd, data, offset)
        if len(data) <= 10:
            raise OSError(errno.ENOSPC, "the disk is full")
        return write(fd, data[: len(data) - 10], offset)

    monkeypatch.setattr(os, "pwrite", part_of_it)
    driver = drive(drivers, tmp_path)
    driver.send(1)
    wait_until(lambda: driver.confirmed(1))
    full.set()
    driver.send(2)
    driver.send(3)
    told = f"err {tmp_path}: the disk is full"
    wait_until(lambda: told in driver.said())
    full.clear()
    wait_until(lambda: driver.confirmed(3))
    driver.end()
    assert driver.said().count(told) == 1
    assert driver.ids() == [1, 2, 3]
    assert driver.complete


def test_when_the_node_ends_with_a_failing_disk_the_file_is_closed_without_the_rest(
    tmp_path: Path, drivers: list[Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Segment.append

    def full(segment: Segment, data: bytes) -> None:
        if b"D-00000002" in data:
            raise OSError(errno.ENOSPC, "the disk is full")
        append(segment, data)

    monkeypatch.setattr(Segment, "append", full)
    driver = drive(drivers, tmp_path)
    driver.raw(batch(1) + batch(2) + batch(3))
    driver.end()
    assert driver.ids() == [1]
    assert driver.complete is False


def test_a_directory_that_cannot_be_created_is_reported(
    tmp_path: Path, drivers: list[Driver]
) -> None:
    (tmp_path / "file").write_text("")
    driver = drive(drivers, tmp_path / "file")
    driver.send(1)
    wait_until(lambda: any(line.startswith("err ") for line in driver.said()))
    (tmp_path / "file").unlink()
    wait_until(lambda: driver.confirmed(1))
    driver.end()
    assert driver.ids() == [1]


def test_the_file_of_the_previous_process_is_closed(tmp_path: Path, drivers: list[Driver]) -> None:
    segment = create(tmp_path, Naming(NODE), NOW - 1)
    line = json.dumps({"id": "D-00000041"}).encode() + b"\n"
    segment.append(line)
    known = segment.size
    segment.append(line + b"{")
    os.close(segment.fd)
    driver = Driver(tmp_path, 1 << 20, 0)
    drivers.append(driver)
    driver.child.recover(segment.name, known)
    driver.start()
    driver.send(42)
    driver.end()
    assert driver.ids() == [41, 42]


def test_two_nodes_in_one_directory_do_not_disturb_each_other(
    tmp_path: Path, drivers: list[Driver]
) -> None:
    # Nor do two processes of one node, as in a restart that does not wait for the old one.
    first = drive(drivers, tmp_path, size=300)
    second = drive(drivers, tmp_path, size=300)
    for n in range(20):
        first.send(n)
        second.send(100 + n)
        second.child.recover("", 0)
    first.end()
    second.end()
    assert sorted(first.ids()) == [*range(20), *range(100, 120)]
    assert not [name for name in first.files() if name.endswith(".open")]
