"""Queues longer than memory: a node is killed, restarted, changed and damaged while jobs lie on
disk."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.harness import LiveNode, NodeFactory, Wire, wait_until
from tests.support.live_helpers import kill, restart, stop

ON = ("--appendonly", "yes", "--maxmemory", "12mb")
JOBS = 25_000


def fill(wire: Wire, count: int, retry: int = 300, groups: int = 0) -> list[bytes]:
    """Add ``count`` jobs with this retry time, in as many ``groups`` in turn; returns their ids."""
    ids: list[bytes] = []
    for at in range(0, count, 500):
        request = (
            b"*%d\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$6\r\n%06d\r\n$1\r\n0\r\n"
            b"$5\r\nRETRY\r\n$3\r\n%03d\r\n"
        )
        requests: list[bytes] = []
        for number in range(at, at + 500):
            requests.append(request % (8 if groups else 6, number, retry))
            if groups:
                requests.append(b"$5\r\nGROUP\r\n$3\r\n%03d\r\n" % (number % groups))
        wire.raw(b"".join(requests))
        for _ in range(500):
            reply = wire.read()
            assert isinstance(reply, bytes), reply
            ids.append(reply)
    return ids


def take_all(wire: Wire) -> list[bytes]:
    """Take and acknowledge all jobs; returns their ids."""
    found: list[bytes] = []
    while True:
        reply = wire("GETJOB", "NOHANG", "COUNT", 500, "FROM", "q")
        if reply is None:
            return found
        assert isinstance(reply, list)
        new = [job[1] for job in reply]
        assert wire("ACKJOB", *new) == len(new)
        found += new


def paged(node: LiveNode) -> int:
    return int(node.info("jobs")["paging_jobs"])


@pytest.mark.parametrize("end", [stop, kill, restart])
def test_a_queue_longer_than_memory_survives(
    disque_server: NodeFactory, end: Callable[[LiveNode], None]
) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    ids = fill(wire, JOBS)
    wait_until(lambda: paged(node) > JOBS // 2)
    gone = ids[1000:20_000:100]
    assert wire("ACKJOB", *gone) == len(gone)
    # A command that begins just before the end.
    wire.raw(b"*2\r\n$4\r\nSHOW\r\n$40\r\n%b\r\n" % ids[12_345])
    end(node)
    new = node if end is restart else disque_server(*ON, cwd=node.directory)
    wire = new.wire()
    wait_until(lambda: wire("PING") == b"PONG")
    assert paged(new) > JOBS // 3
    ended = set(gone)
    assert take_all(wire) == [id for id in ids if id not in ended]
    wait_until(lambda: not list((node.directory / "pages").iterdir()))


@pytest.mark.parametrize("end", [kill, restart])
def test_groups_longer_than_memory_take_turns(
    disque_server: NodeFactory, end: Callable[[LiveNode], None]
) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    assert wire("QSET", "q", "GROUPS", "fair") == b"OK"
    ids = fill(wire, JOBS, groups=25)
    wait_until(lambda: paged(node) > JOBS // 2)
    reply = wire("GETJOB", "COUNT", 1000, "FROM", "q")
    assert isinstance(reply, list)
    got = [job[1] for job in reply]
    assert wire("ACKJOB", *got) == 1000
    assert got == ids[:1000]
    end(node)
    new = node if end is restart else disque_server(*ON, cwd=node.directory)
    wire = new.wire()
    wait_until(lambda: wire("PING") == b"PONG")
    assert paged(new) > JOBS // 3
    rest = take_all(wire)
    group = {id: number % 25 for number, id in enumerate(ids)}
    assert all(len({group[id] for id in rest[at : at + 25]}) == 25 for at in range(0, 20_000, 25))
    assert sorted(rest, key=lambda id: group[id]) == sorted(ids[1000:], key=lambda id: group[id])
    wait_until(lambda: not list((node.directory / "pages").iterdir()))


def test_the_settings_may_change_while_the_node_is_full(disque_server: NodeFactory) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    ids = fill(wire, JOBS)
    wait_until(lambda: paged(node) > JOBS // 2)
    assert node.info("jobs")["paging_active"] == "1"
    assert wire("CONFIG", "SET", "paging", "no") == b"OK"
    assert node.info("jobs")["paging_active"] == "0"
    assert wire("CONFIG", "SET", "maxmemory", "7mb") == b"OK"
    assert "NOREPL" in wire.error("ADDJOB", "q", "x", 0)
    got = []
    for _ in range(10):
        reply = wire("GETJOB", "COUNT", 100, "FROM", "q")
        assert isinstance(reply, list)
        got += [job[1] for job in reply]
    assert wire("ACKJOB", *got) == 1000
    assert wire("CONFIG", "SET", "paging", "yes") == b"OK"
    wait_until(lambda: isinstance(wire("ADDJOB", "other", "x", 0), bytes))
    assert wire("CONFIG", "SET", "maxmemory", "100mb") == b"OK"
    assert got + take_all(wire) == ids


def test_without_a_file_paging_is_refused(disque_server: NodeFactory) -> None:
    node = disque_server("--maxmemory", "12mb")
    wire = node.wire()
    assert wire("CONFIG", "GET", "paging") == [b"paging", b"yes"]
    assert node.info("jobs")["paging_active"] == "0"
    assert "appendonly" in wire.error("CONFIG", "SET", "paging", "yes")
    assert wire("CONFIG", "SET", "appendonly", "yes", "paging", "yes") == b"OK"
    assert node.info("jobs")["paging_active"] == "1"


def test_damaged_and_missing_files_are_made_again(disque_server: NodeFactory) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    ids = fill(wire, JOBS)
    files: list[Path] = []

    def written() -> bool:
        files[:] = sorted((node.directory / "pages").glob("*.seg"))
        return len(files) >= 3 and all(file.stat().st_size for file in files)

    wait_until(written)
    content = bytearray(files[0].read_bytes())
    content[1000] ^= 1
    files[0].write_bytes(bytes(content))
    files[1].unlink()
    files[2].write_bytes(files[2].read_bytes()[:-10])
    assert take_all(wire) == ids
    assert node.info("jobs")["paging_lost"] == "0"


def test_a_rewrite_keeps_jobs_on_disk(disque_server: NodeFactory) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    ids = fill(wire, JOBS)
    assert wire("CONFIG", "SET", "appendonly", "no") == b"OK"
    assert wire("CONFIG", "SET", "appendonly", "yes") == b"OK"  # a dump from memory and disk
    wait_until(lambda: node.info("persistence")["aof_state"] == "on")
    # Until the progress file is there again, a start does not know that nobody has the jobs.
    wait_until(lambda: node.info("persistence")["progress_file_status"] == "ok")
    node.kill()
    node = disque_server(*ON, cwd=node.directory)
    wire = node.wire()
    wait_until(lambda: wire("PING") == b"PONG")
    assert wire("BGREWRITEAOF")
    wait_until(lambda: node.info("persistence")["aof_last_rewrite_time_sec"] != "-1")
    node.kill()
    node = disque_server(*ON, cwd=node.directory)
    wire = node.wire()
    wait_until(lambda: wire("PING") == b"PONG")
    assert take_all(wire) == ids


def started_again(disque_server: NodeFactory, node: LiveNode) -> tuple[LiveNode, Wire]:
    """A node that has loaded the file of ``node``, which ended."""
    new = disque_server(*ON, cwd=node.directory)
    wire = new.wire()
    wait_until(lambda: wire("PING") == b"PONG")
    return new, wire


def killed_without_progress(
    disque_server: NodeFactory, retry: int
) -> tuple[LiveNode, Wire, list[bytes]]:
    """A node that started without a progress file, and the jobs that it had: nobody knows whether
    clients have them."""
    node = disque_server(*ON)
    ids = fill(node.wire(), JOBS, retry)
    wait_until(lambda: paged(node) > JOBS // 2)
    node.kill()
    (node.directory / "disque.aof.progress").unlink()
    return *started_again(disque_server, node), ids


def waiting(node: LiveNode) -> int:
    return int(node.info("jobs")["jobs_waiting_retry"])


def check_that_all_wait(node: LiveNode, wire: Wire) -> None:
    assert waiting(node) == JOBS
    wait_until(lambda: paged(node) > JOBS // 2)
    assert int(node.info("memory")["used_memory"]) < 12 << 20
    fields = wire("QSTAT", "q", "FULL")
    assert isinstance(fields, list)
    assert fields[fields.index(b"jobs-waiting") + 1] == JOBS


def test_jobs_of_which_nothing_is_known_wait_on_disk(disque_server: NodeFactory) -> None:
    node, wire, ids = killed_without_progress(disque_server, 600)
    check_that_all_wait(node, wire)
    wait_until(lambda: node.info("persistence")["progress_file_status"] == "ok")
    node.kill()
    again, wire = started_again(disque_server, node)
    check_that_all_wait(again, wire)
    assert wire("GETJOB", "NOHANG", "FROM", "q") is None
    assert wire("ENQUEUE", *ids[5000:5100]) == 100
    assert take_all(wire) == ids[5000:5100]
    assert wire("ACKJOB", *ids) == JOBS - 100
    assert again.info("jobs")["registered_jobs"] == "0"


def test_they_are_all_queued_after_their_retry_time(disque_server: NodeFactory) -> None:
    node, wire, ids = killed_without_progress(disque_server, 5)
    wait_until(lambda: waiting(node) == 0)
    assert paged(node) > JOBS // 2
    assert int(node.info("memory")["used_memory"]) < 12 << 20
    assert take_all(wire) == ids
    wait_until(lambda: not list((node.directory / "pages").iterdir()))


@pytest.mark.parametrize("end", [stop, restart])
def test_a_node_with_many_jobs_on_disk_starts_with_an_index(
    disque_server: NodeFactory, end: Callable[[LiveNode], None]
) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    ids = fill(wire, 130_000)
    wait_until(lambda: paged(node) > 110_000)
    gone = ids[5000:100_000:1000]
    assert wire("ACKJOB", *gone) == len(gone)
    size = (node.directory / "disque.aof").stat().st_size
    end(node)
    new = node if end is restart else disque_server(*ON, cwd=node.directory)
    wire = new.wire()
    wait_until(lambda: wire("PING") == b"PONG")
    assert new.info("persistence")["aof_last_load_index"] == "1"
    assert (node.directory / "disque.aof").stat().st_size == size
    assert not (node.directory / "pages" / "aof.index").exists()
    ended = set(gone)
    assert take_all(wire) == [id for id in ids if id not in ended]
    wait_until(lambda: not list((node.directory / "pages").iterdir()))
