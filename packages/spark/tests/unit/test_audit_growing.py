"""Segments that are read while a node writes them: each line counts once, wherever reads end."""

import gzip
import json
import random
from pathlib import Path

import pytest

from disque_spark.audit.gaps import Ends, ends_of, read_before
from disque_spark.audit.partial_jobs import Notes, cut, read
from disque_spark.audit.unread import Segments
from disque_spark.files import Location, location
from disque_spark.segments import find_segments, grown

NODE = "a" * 40
NAME = f"events-{NODE[:8]}-0000000000001-0.jsonl"


def line(number: int) -> bytes:
    event = {"time": 1000 + number, "node": NODE, "event": "queued", "id": f"D-{number}"}
    return json.dumps(event).encode() + b"\n"


HEAD = json.dumps({"time": 1, "node": NODE, "event": "segment", "name": NAME}).encode() + b"\n"


class Log:
    """A growing segment, and what an audit that reads it repeatedly knows."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.open = directory / f"{NAME}.open"
        self.known: dict[str, int] = {}
        self.growing: dict[str, int] = {}
        self.ends: Ends | None = None
        self.ids: list[str] = []

    def write(self, data: bytes) -> None:
        with self.open.open("ab") as file:
            file.write(data)

    def close(self, compress: bool = False) -> None:
        data = self.open.read_bytes()
        if compress:
            (self.directory / f"{NAME}.gz").write_bytes(gzip.compress(data))
            self.open.unlink()
        else:
            self.open.rename(self.directory / NAME)

    def look(self) -> None:
        """Read it, as a run does."""
        found = find_segments([str(self.directory)], True)
        segments = Segments(found, self.known, growing=self.growing)
        self.take(segments)

    def take(self, segments: Segments) -> None:
        notes = Notes()
        for pieces in cut(list(segments.new)):
            rows, _, said = read(pieces, [NODE])
            self.ids += rows.column("id").to_pylist()
            notes.add(said.text())
        for place, (_, head) in segments.new.items():
            assert head is not None
            stretches = notes.segments().get(str(place), [])
            if place.start:
                stretches.insert(0, read_before(head, self.ends))
            self.ends = ends_of(head, stretches) or self.ends
        self.known |= segments.sizes
        self.growing = segments.growing


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@pytest.mark.parametrize("compress", [False, True])
def test_a_segment_is_read_as_it_grows(log: Log, compress: bool) -> None:
    log.write(HEAD + line(1))
    log.look()
    assert log.ids == ["D-1"]
    log.write(line(2) + line(3)[:20])  # half a line arrives later
    log.look()
    log.look()
    assert log.ids == ["D-1", "D-2"]
    log.write(line(3)[20:] + line(4))
    log.close(compress)
    log.look()
    log.look()
    assert log.ids == ["D-1", "D-2", "D-3", "D-4"]
    assert (list(log.known), log.growing) == ([NAME], {})
    assert log.ends is not None
    assert (log.ends.first, log.ends.last, log.ends.lines) == (1001, 1004, 4)


def test_a_segment_of_which_there_is_only_the_first_line(log: Log) -> None:
    log.write(HEAD[:5])
    log.look()
    assert log.growing == {}
    log.write(HEAD[5:])
    log.look()
    log.write(line(1))
    log.look()
    assert log.ids == ["D-1"]
    assert log.ends is not None
    assert log.ends.lines == 1
    log.close()
    log.look()  # nothing is new except that it is complete
    assert (log.ids, list(log.known)) == (["D-1"], [NAME])


def test_a_segment_closed_before_it_is_read_is_read(log: Log) -> None:
    log.write(HEAD + line(1))
    log.look()
    log.write(line(2))
    found = find_segments([str(log.directory)], True)
    log.close(compress=True)
    log.take(Segments(found, log.known, growing=log.growing))
    log.look()
    assert log.ids == ["D-1", "D-2"]


def test_a_segment_closed_while_it_is_read_is_read_up_to_its_old_end(log: Log) -> None:
    log.write(HEAD + line(1))
    segments = Segments(find_segments([str(log.directory)], True), {}, growing={})
    log.write(line(2))
    log.close(compress=True)
    log.take(segments)
    assert log.ids == ["D-1"]
    log.look()
    assert log.ids == ["D-1", "D-2"]


def test_lines_that_a_machine_has_lost_after_they_were_read_count(log: Log) -> None:
    log.write(HEAD + line(1) + line(2))
    log.look()
    log.open.write_bytes(HEAD + line(1))  # as after a power cut
    log.look()
    log.close()
    log.look()
    log.look()
    assert log.ids == ["D-1", "D-2"]
    assert log.growing == {}


def test_an_audit_that_does_not_read_what_grows_goes_on_when_it_is_closed(log: Log) -> None:
    log.write(HEAD + line(1))
    log.look()
    log.write(line(2))
    found = find_segments([str(log.directory)], False)
    assert found == []
    log.take(Segments(found, log.known, growing=log.growing))
    log.close()
    log.take(Segments(find_segments([str(log.directory)], False), log.known, growing=log.growing))
    assert log.ids == ["D-1", "D-2"]


def test_the_whole_lines_of_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.open"
    path.write_bytes(b"x" * 10 + b"\n" + b"y" * 300_000)

    def end(start: int) -> Location:
        found = grown(location(path), start)
        assert found is not None
        return found

    assert end(0).size() == 11
    assert (end(11).start, end(11).size()) == (11, 11)
    path.unlink()
    assert grown(location(path), 0) is None


@pytest.mark.parametrize("seed", range(5))
def test_each_line_is_read_once_wherever_the_file_is_cut(log: Log, seed: int) -> None:
    random_ = random.Random(seed)
    data = HEAD + b"".join(line(number) for number in range(50))
    while data:
        count = random_.randrange(1, 400)
        log.write(data[:count])
        data = data[count:]
        log.look()
    log.close(compress=bool(seed % 2))
    log.look()
    assert sorted(log.ids, key=lambda id: int(id[2:])) == [f"D-{number}" for number in range(50)]
    assert log.ends is not None
    assert log.ends.lines == 50
