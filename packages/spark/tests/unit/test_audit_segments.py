"""Which files of logs are read."""

import gzip
import json
from pathlib import Path

import pytest

from disque_spark.audit.unread import AuditError, Segments
from disque_spark.files import Location, location

NODE = "a" * 40
NAME = f"events-{NODE[:8]}-0000000000001-0.jsonl"


def segment(directory: Path, file: str = NAME, said: str | None = NAME) -> Location:
    lines = [{"time": 5, "node": NODE, "event": "queued"}]
    if said is not None:
        lines.insert(0, {"time": 5, "node": NODE, "event": "segment", "name": said})
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    directory.mkdir(exist_ok=True)
    path = directory / file
    path.write_bytes(gzip.compress(text) if file.endswith(".gz") else text)
    return location(path)


def test_a_copy_under_another_name_does_not_count(tmp_path: Path) -> None:
    copy = segment(tmp_path, "events-0-backup.jsonl")
    own = segment(tmp_path)
    segments = Segments([copy, own], {})
    assert list(segments.new) == [own]
    assert segments.copies == 1
    # Even if the other one was read long ago, and is gone.
    again = Segments([copy], segments.sizes)
    assert (again.new, again.copies) == ({}, 0)


def test_a_segment_that_was_renamed_is_known_by_the_name_that_it_says(tmp_path: Path) -> None:
    segments = Segments([segment(tmp_path, "events-host1.jsonl")], {})
    ((name, head),) = segments.new.values()
    assert (name, head and head.node) == (NAME, NODE)


def test_a_segment_that_does_not_say_its_name_has_that_of_its_file(tmp_path: Path) -> None:
    segments = Segments([segment(tmp_path, said=None)], {})
    assert [one.name for one in segments.new.values()] == [NAME]


def test_a_segment_that_was_compressed_meanwhile_is_the_same(tmp_path: Path) -> None:
    plain, packed = segment(tmp_path), segment(tmp_path, NAME + ".gz")
    segments = Segments([plain, packed], {})
    assert (list(segments.new), segments.copies) == ([plain], 0)
    assert Segments([packed], segments.sizes).new == {}


def test_two_segments_of_one_name_in_different_directories_are_refused(tmp_path: Path) -> None:
    files = [segment(tmp_path / "a"), segment(tmp_path / "b", "events-1.jsonl")]
    with pytest.raises(AuditError, match="the same name"):
        Segments(files, {})


def test_a_segment_that_has_grown_since_it_was_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="incomplete"):
        Segments([segment(tmp_path)], {NAME: 7})
