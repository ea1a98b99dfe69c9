"""Code that reads and writes files works on S3 as it does locally, even if the server fails."""

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest

from disque_spark import filesystems
from disque_spark.audit.partial_jobs import cut, read
from disque_spark.audit.store import Manifest, Store, StoreError
from disque_spark.files import Location, location
from disque_spark.notes import note, noted
from disque_spark.parquet import rows_of, write_file
from disque_spark.segments import blocks, find_segments, split
from disque_spark.sink.dead_letters import DeadLetters
from packages.spark.tests.support.planted_log import NODES, generate
from packages.spark.tests.support.s3 import Bucket, Fault, Flaky


@pytest.fixture
def flaky(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flaky]:
    """A server in front of the bucket that fails when told to."""
    server = Flaky(s3.endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    yield server
    server.end()


def uploaded(log: Path, place: Location) -> None:
    for number, file in enumerate(sorted(log.iterdir())):
        data = file.read_bytes()
        if number % 2:
            (place / f"{file.name}.gz").write_bytes(gzip.compress(data))
        else:
            (place / file.name).write_bytes(data)


def test_segments_are_read_in_pieces(s3: Bucket, tmp_path: Path) -> None:
    generate(tmp_path, 3_000, anomalies=5, chunk=1000)
    far = location(s3.uri) / "logs"
    uploaded(tmp_path, far)
    (far / "notes.txt").write_bytes(b"no segment")
    here = find_segments([tmp_path], False)
    there = find_segments([f"{s3.uri}/l*"], False)
    assert [file.name.removesuffix(".gz") for file in there] == [file.name for file in here]
    lines = [
        sorted(
            line
            for pieces in split(files, 10_000)
            for piece in pieces
            for line in b"".join(blocks(piece)).splitlines()
        )
        for files in (here, there)
    ]
    assert lines[0] == lines[1]
    events = [
        sum(read(pieces, NODES)[1].events for pieces in cut(files, 1 << 17))
        for files in (here, there)
    ]
    assert events[0] == events[1] > 0


def test_lines_are_noted(s3: Bucket, tmp_path: Path) -> None:
    for place in (tmp_path / "done", f"{s3.uri}/done"):
        assert noted(location(place)) == []
        note(location(place), [b"1", b"2"])
        note(location(place), [b"3"])
        assert noted(location(place)) == [b"1", b"2", b"3"]


def test_letters_are_there_when_the_task_is_done(s3: Bucket) -> None:
    place = location(s3.uri) / "letters"
    rows = pa.RecordBatch.from_pydict({"body": [b"a", b"b"]})
    lost, kept = DeadLetters(place), DeadLetters(place)
    lost.add(rows, [0], ["NO"], "q")
    kept.add(rows, [1], ["NO"], "q")
    lost.close()
    path = kept.publish()
    kept.close()
    assert [str(file) for file in place.files()] == [path]
    schema = pa.schema([("body", pa.binary()), ("queue", pa.string()), ("other", pa.int32())])
    (batch,) = rows_of(location(path), schema)
    assert batch.to_pylist() == [{"body": b"b", "queue": "q", "other": None}]


def test_a_table_has_columns_in_the_names_of_its_directories(s3: Bucket) -> None:
    place = location(s3.uri) / "queue=a%3Ab" / "day=2026-01-31" / "x.parquet"
    write_file(place, pa.table({"id": ["one"]}))
    schema = pa.schema([("id", pa.string()), ("queue", pa.string()), ("day", pa.date32())])
    (batch,) = rows_of(place, schema)
    (row,) = batch.to_pylist()
    assert (row["id"], row["queue"], str(row["day"])) == ("one", "a:b", "2026-01-31")


def test_one_of_two_concurrent_audits_makes_the_version(s3: Bucket) -> None:
    far = location(s3.uri) / "audit"
    audits = {str(number): Store(far) for number in range(2)}
    won, gave_way = [], []

    def commit(name: str) -> None:
        try:
            audits[name].commit(Manifest(gone=[name]))
        except StoreError:
            gave_way.append(name)
        else:
            won.append(name)

    threads = [Thread(target=commit, args=(name,)) for name in audits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(gave_way)) == (1, 1)
    again = Store(far)
    assert again.manifest.gone == won
    for _ in range(3):
        again.commit(Manifest())
    names = [file.name for file in (far / "manifests").files()]
    assert names == ["000003.json", "000004.json"]


FAULTS = [500, 503, Fault.RESET, Fault.RESET_IN_REQUEST, Fault.RESET_IN_REPLY, Fault.LOST_REPLY]


@pytest.mark.parametrize("fault", [*FAULTS, Fault.SILENT])
def test_a_server_that_fails_now_and_then_is_asked_again(
    fault: int, flaky: Flaky, s3: Bucket
) -> None:
    data = b"some data" * 10_000
    place = location(f"{s3.uri}?request_timeout=1") / "file"
    flaky.faults = [fault]
    place.write_bytes(data)
    assert not flaky.faults
    assert (location(f"{s3.uri}?endpoint_override={s3.endpoint}") / "file").read_bytes() == data
    for faults in ([fault], [None, fault]):  # the second request is the one for the data
        flaky.faults = [*faults]
        assert place.read_bytes() == data
    flaky.faults = [fault]
    assert [file.name for file in place.parent.files()] == ["file"]


@pytest.mark.parametrize("fault", [*FAULTS, Fault.SILENT])
def test_a_version_is_made_once_when_the_server_fails(fault: int, flaky: Flaky, s3: Bucket) -> None:
    place = location(f"{s3.uri}?request_timeout=1") / "manifest"
    flaky.faults = [fault]
    assert place.put_new(b"mine" * 10_000)
    assert not flaky.faults
    assert not place.put_new(b"another")
    assert place.read_bytes() == b"mine" * 10_000


def test_a_server_that_never_answers_is_an_error_some_time(
    flaky: Flaky, s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystems, "_ATTEMPTS", 2)
    place = location(f"{s3.uri}?request_timeout=1") / "file"
    wrong: list[Callable[[], object]] = [
        place.read_bytes,
        place.exists,
        place.parent.files,
        lambda: place.write_bytes(b"1"),
        lambda: place.put_new(b"1"),
    ]
    for ask in wrong:
        flaky.faults = [Fault.SILENT] * 20
        with pytest.raises(OSError, match=s3.name) as failure:
            ask()
        assert "\n" not in str(failure.value)
    flaky.faults = []
    assert not place.exists()


def test_files_without_a_manifest_do_not_count(flaky: Flaky, s3: Bucket) -> None:
    """As if a program was killed between its files and the manifest."""
    store = Store(f"{s3.uri}/audit")
    store.commit(Manifest(gone=["before"]))
    day = "2026-11-24"
    lost = store.place("jobs", day) / f"{store.stamp()}.parquet"
    write_file(lost, pa.table({"id": ["half"]}))
    flaky.refused = "/manifests/"
    with pytest.raises(OSError, match="manifests"):
        store.commit(Manifest(changed=[f"jobs/{day}"]))
    flaky.refused = ""
    again = Store(f"{s3.uri}/audit")
    assert again.manifest.gone == ["before"]
    assert again.paths("jobs") == []
    again.commit(Manifest(gone=["after"], changed=[f"jobs/{day}"]))
    assert Store(f"{s3.uri}/audit").manifest.gone == ["after"]
    assert not lost.exists()


def test_a_server_that_fails_on_and_on_is_an_error_in_a_line(
    flaky: Flaky, s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystems, "_ATTEMPTS", 1)
    place = location(s3.uri) / "file"
    for wrong, status in ((place.read_bytes, 503), (place.parent.files, 503), (place.exists, 403)):
        flaky.faults = [status] * 100
        with pytest.raises(OSError, match=s3.name) as failure:
            wrong()
        assert "\n" not in str(failure.value)
        assert isinstance(failure.value, PermissionError) == (status == 403)


def test_a_file_that_vanishes_between_list_and_read_is_named(s3: Bucket) -> None:
    place = location(s3.uri) / "events-1.jsonl"
    place.write_bytes(b"{}\n" * 10)
    (pieces,) = split(find_segments([s3.uri], False), 1000)
    place.delete()
    with pytest.raises(FileNotFoundError, match=r"^nothing at s3a://.*/events-1.jsonl"):
        list(blocks(pieces[0]))
