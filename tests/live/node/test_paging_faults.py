"""Queues longer than memory: kills while files are written, read and removed; files of another node
or another time; and a disk that is full."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.live.node.test_paging import JOBS, ON, fill, take_all
from tests.support.harness import LiveNode, NodeFactory, Wire, wait_until
from tests.support.live_helpers import packed
from tests.support.small_disk import small_disk

FEW = 18_000  # jobs of which some go to disk


def start(factory: NodeFactory, where: Path) -> tuple[LiveNode, Wire]:
    node = factory(*ON, cwd=where)
    wire = node.wire()
    wait_until(lambda: wire("PING") == b"PONG")
    return node, wire


def held(wire: Wire) -> set[bytes]:
    """All jobs, on disk or not."""
    found = wire("JSCAN", "BUSYLOOP")
    assert isinstance(found, list)
    return set(found[1])


def files(where: Path) -> list[Path]:
    """The files of jobs, the oldest first."""
    return sorted((where / "pages").glob("*.seg"), key=lambda path: int(path.stem))


@pytest.mark.slow
def test_kills_while_files_are_written_read_and_removed(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    node, wire = start(disque_server, tmp_path)
    ids = fill(wire, FEW // 2)
    wire.raw(packed("ADDJOB", "q", "x" * 100, 0) * FEW)
    wait_until(lambda: files(tmp_path))
    node.kill()  # while it writes

    node, wire = start(disque_server, tmp_path)
    there = held(wire)
    assert there >= set(ids)
    more = fill(wire, JOBS)
    there.update(more)
    reads = node.wire()
    reads.raw(b"".join([packed("SHOW", id) for id in more[: JOBS // 2 : 50]]))
    reads.raw(packed("GETJOB", "NOHANG", "COUNT", 1000, "FROM", "q") * 10)
    wait_until(lambda: node.info("jobs")["paging_reads"] != "0")
    node.kill()  # while it reads

    node, wire = start(disque_server, tmp_path)
    assert held(wire) == there
    before = files(tmp_path)
    assert before
    wire.raw(b"".join([packed("ACKJOB", *more[at : at + 500]) for at in range(0, JOBS, 500)]))
    wait_until(lambda: before[-1] not in files(tmp_path))
    node.kill()  # while it removes

    node, wire = start(disque_server, tmp_path)
    assert held(wire) >= there - set(more)


def replace(where: Path, saved: Path) -> None:
    """Put the files of the node at ``where``, but not those of jobs, back from where they
    were ``saved``."""
    for path in saved.iterdir():
        if path.is_file():
            shutil.copy(path, where)


@pytest.mark.slow
def test_files_of_another_node_and_of_another_time_are_made_again(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    node, wire = start(disque_server, one)
    ids = fill(wire, FEW)
    wait_until(lambda: files(one))
    node.kill()
    older = tmp_path / "older"
    shutil.copytree(one, older)
    stranger, wire = start(disque_server, other)
    fill(wire, FEW)
    wait_until(lambda: files(other))
    stranger.kill()

    node, wire = start(disque_server, one)
    more = fill(wire, FEW)
    wait_until(lambda: len(files(one)) >= 4)
    node.kill()
    newer = tmp_path / "newer"
    shutil.copytree(one, newer)

    # The files of jobs are newer than the append-only file, and half of them are missing or torn.
    replace(one, older)
    for number, path in enumerate(files(one)):
        if number % 4 == 0:
            path.unlink()
        elif number % 4 == 1:
            path.write_bytes(path.read_bytes()[:1000])
    node, wire = start(disque_server, one)
    assert "removed the files of jobs that an earlier process had on disk" in node.log.read_text()
    assert held(wire) == set(ids)
    node.kill()

    # They are older than it, or belong to another node.
    replace(one, newer)
    for path in files(other):
        shutil.copy(path, one / "pages")
    node, wire = start(disque_server, one)
    assert held(wire) == {*ids, *more}

    # Somebody copies them over those in use.
    wait_until(lambda: len(files(one)) >= 4)
    mine = files(one)
    mine[0].write_bytes(files(other)[0].read_bytes())
    content = mine[1].read_bytes()
    mine[1].write_bytes(mine[2].read_bytes())
    mine[2].write_bytes(content)
    assert take_all(wire) == ids + more
    assert node.info("jobs")["paging_lost"] == "0"
    text = node.log.read_text()
    assert "jobs that lie on disk cannot be read" in text
    assert "jobs were found in the append-only file" in text


def fill_until_refused(wire: Wire) -> tuple[list[bytes], str]:
    """Add jobs until one is refused; returns their ids and the error."""
    ids: list[bytes] = []
    while True:
        wire.raw(packed("ADDJOB", "q", "x" * 400, 0) * 500)
        replies = [wire.read() for _ in range(500)]
        ids += [reply for reply in replies if isinstance(reply, bytes)]
        refused = [str(reply) for reply in replies if not isinstance(reply, bytes)]
        if refused:
            return ids, refused[-1]


def test_without_room_for_pages_jobs_stay_in_memory_and_go_once_there_is_some(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "pages", 1):
        node, wire = start(disque_server, tmp_path)
        ids, text = fill_until_refused(wire)
        assert "and jobs cannot go to disk (No space left on device)" in text
        assert node.info("jobs")["paging_problem"] == "No space left on device"
        reply = wire("GETJOB", "COUNT", 100, "FROM", "q")
        assert isinstance(reply, list)
        taken = [job[1] for job in reply]
        assert wire("ACKJOB", *taken) == 100
        larger = ["mount", "-o", "remount,size=64m", str(tmp_path / "pages")]
        subprocess.run(larger, check=True)
        wait_until(lambda: node.info("jobs")["paging_problem"] == "")
        ids += fill(wire, 1000)
        assert taken + take_all(wire) == ids
        node.close()


def test_a_disk_full_of_pages_and_the_append_only_file_can_be_drained(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", 16) as disk:
        node, wire = start(disque_server, disk)
        ids, text = fill_until_refused(wire)
        assert "No space left on device" in text
        assert take_all(wire) == ids
        wait_until(lambda: isinstance(wire("ADDJOB", "q", "x", 0), bytes))
        node.close()
