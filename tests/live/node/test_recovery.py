"""What a node knows of its jobs after a stop and a start, a kill, and RESTART."""

import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.harness import LiveNode, NodeFactory, Wire, wait_until
from tests.support.live_helpers import kill, pairs, restart, stop

ON = ("--appendonly", "yes")
Again = Callable[[LiveNode], LiveNode]


def again(end: Callable[[LiveNode], None], node: LiveNode, factory: NodeFactory) -> Wire:
    """End ``node``, start it again, and return a connection to it once it has loaded its jobs."""
    end(node)
    new = node if end is restart else factory(*ON, cwd=node.directory)
    wire = new.wire()
    wait_until(lambda: wire("PING") == b"PONG")
    return wire


def ids(reply: object) -> list[bytes]:
    return [job[1] for job in reply] if isinstance(reply, list) else []


def settle(node: LiveNode) -> None:
    """Wait until the progress file has what has happened so far."""
    wait_until(lambda: node.info("persistence")["progress_file_pending"] == "0")


ends = pytest.mark.parametrize("end", [stop, kill, restart])
files = pytest.mark.parametrize("options", [(), ON], ids=["off", "on"])


@ends
def test_queued_jobs_are_queued_again_in_their_order(
    disque_server: NodeFactory, end: Callable[[LiveNode], None]
) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    added = [wire("ADDJOB", "q", n, 0, "RETRY", 600 * (n % 2)) for n in range(10)]
    urgent = wire("ADDJOB", "q", "urgent", 0, "PRIORITY", 7)
    delayed = wire("ADDJOB", "q", "delayed", 0, "DELAY", 1000)
    wire = again(end, node, disque_server)
    assert wire("QLEN", "q") == 11
    assert ids(wire("GETJOB", "NOHANG", "COUNT", 20, "FROM", "q")) == [urgent, *added]
    shown = pairs(wire("SHOW", delayed))
    assert shown["state"] == b"active"
    assert 900_000 < int(str(shown["next-requeue-within"])) <= 1_000_500


@ends
def test_a_job_that_a_client_has_waits_for_the_rest_of_its_retry_time(
    disque_server: NodeFactory, end: Callable[[LiveNode], None]
) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    taken = wire("ADDJOB", "q", "taken", 0, "RETRY", 600)
    once = wire("ADDJOB", "q", "once", 0, "RETRY", 0)
    assert ids(wire("GETJOB", "COUNT", 2, "FROM", "q")) == [taken, once]
    soon = wire("ADDJOB", "q", "soon", 0, "RETRY", 2)
    assert ids(wire("GETJOB", "FROM", "q")) == [soon]
    free = wire("ADDJOB", "q", "free", 0, "RETRY", 600)
    settle(node)
    wire = again(end, node, disque_server)
    got = ids(wire("GETJOB", "FROM", "q")) + ids(wire("GETJOB", "FROM", "q"))
    assert sorted(got) == sorted([free, soon])
    assert pairs(wire("SHOW", soon))["additional-deliveries"] == 1
    shown = pairs(wire("SHOW", taken))
    assert 500_000 < int(str(shown["next-requeue-within"])) <= 600_500
    assert wire("SHOW", once) is None or pairs(wire("SHOW", once))["state"] == b"active"
    assert wire("ACKJOB", taken) == 1


@ends
def test_pauses_counters_and_reasons_stay(
    disque_server: NodeFactory, end: Callable[[LiveNode], None]
) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    assert wire("QSET", "q", "ATTEMPTS", 5, "DEAD", "dead") == b"OK"
    id = wire("ADDJOB", "q", "body", 0, "RETRY", 2)
    for delay in (0, 600):
        assert ids(wire("GETJOB", "FROM", "q")) == [id]
        assert wire("NACK", id, "DELAY", delay, "REASON", "not now") == 1
    settle(node)
    wire = again(end, node, disque_server)
    shown = pairs(wire("SHOW", id))
    assert shown["state"] == b"active"
    assert shown["nacks"] == 2
    assert shown["attempts"] == 2
    assert shown["last-reason"] == b"not now"
    assert 500_000 < int(str(shown["next-requeue-within"])) <= 600_500


@ends
def test_results_and_cancellations_stay(
    disque_server: NodeFactory, end: Callable[[LiveNode], None]
) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    done, cancelled = (wire("ADDJOB", "q", n, 0) for n in range(2))
    assert ids(wire("GETJOB", "FROM", "q")) == [done]
    assert wire("ACKJOB", done, "RESULT", "42") == 1
    assert wire("CANCEL", cancelled) == 1
    settle(node)
    wire = again(end, node, disque_server)
    assert wire("WAITJOB", 1, done, cancelled) == [
        [done, b"acked", b"42"], [cancelled, b"cancelled", None],
    ]  # fmt: skip


@ends
def test_who_holds_a_group_and_a_place_stays(
    disque_server: NodeFactory, end: Callable[[LiveNode], None]
) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    assert wire("QSET", "line", "GROUPS", "fifo") == b"OK"
    assert wire("QSET", "few", "ACTIVE", 1) == b"OK"
    line = [wire("ADDJOB", "line", n, 0, "GROUP", "g") for n in range(2)]
    few = [wire("ADDJOB", "few", n, 0) for n in range(2)]
    assert ids(wire("GETJOB", "FROM", "line")) == line[:1]
    assert ids(wire("GETJOB", "FROM", "few")) == few[:1]
    settle(node)
    wire = again(end, node, disque_server)
    assert wire("GETJOB", "NOHANG", "FROM", "line", "few") is None
    assert wire("ACKJOB", line[0], few[0]) == 2
    assert ids(wire("GETJOB", "FROM", "line")) == line[1:]
    assert ids(wire("GETJOB", "FROM", "few")) == few[1:]


def test_without_the_progress_file_jobs_wait_for_their_retry_time_and_are_counted(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    id = wire("ADDJOB", "q", "body", 0, "RETRY", 600)
    stop(node)
    (node.directory / "disque.aof.progress").unlink()
    node = disque_server(*ON, cwd=node.directory)
    wire = node.wire()
    assert wire("QLEN", "q") == 0
    assert node.info("jobs")["jobs_waiting_retry"] == "1"
    assert wire("ENQUEUE", id) == 1
    assert node.info("jobs")["jobs_waiting_retry"] == "0"


def test_with_requeue_at_start_no_jobs_wait_for_their_retry_time(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*ON)
    node.wire()("ADDJOB", "q", "body", 0, "RETRY", 600)
    stop(node)
    node = disque_server(*ON, "--requeue-at-start", "no", cwd=node.directory)
    assert node.wire()("QLEN", "q") == 0
    assert node.info("jobs")["jobs_waiting_retry"] == "1"


def test_a_progress_file_of_another_append_only_file_is_not_used(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    wire("ADDJOB", "q", "body", 0, "RETRY", 600)
    stop(node)
    file = node.directory / "disque.aof"
    record = file.read_bytes()
    file.write_bytes(record + b"*3\r\n$5\r\nPAUSE\r\n$1\r\nx\r\n$2\r\nin\r\n")
    node = disque_server(*ON, cwd=node.directory)
    assert node.wire()("QLEN", "q") == 0


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"DISQUE-PROGRESS-1\n"])
def test_a_damaged_progress_file_costs_no_job(disque_server: NodeFactory, damage: bytes) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    id = wire("ADDJOB", "q", "body", 0, "RETRY", 1)
    kill(node)
    (node.directory / "disque.aof.progress").write_bytes(damage)
    wire = disque_server(*ON, cwd=node.directory).wire()
    assert ids(wire("GETJOB", "FROM", "q")) == [id]


def test_the_file_is_there_only_while_the_append_only_file_is(disque_server: NodeFactory) -> None:
    node = disque_server()
    path: Path = node.directory / "disque.aof.progress"
    wire = node.wire()
    id = wire("ADDJOB", "q", "body", 0, "RETRY", 600)
    assert not path.exists()
    assert wire("CONFIG", "SET", "appendonly", "yes") == b"OK"
    wait_until(path.exists)
    assert ids(wire("GETJOB", "FROM", "q")) == [id]
    wait_until(lambda: node.info("persistence")["aof_state"] == "on")
    settle(node)
    kill(node)
    node = disque_server(*ON, cwd=node.directory)
    wire = node.wire()
    assert 500_000 < int(str(pairs(wire("SHOW", id))["next-requeue-within"])) <= 600_500
    assert wire("CONFIG", "SET", "appendonly", "no") == b"OK"
    wait_until(lambda: not path.exists())


def test_only_the_owner_may_read_the_file(disque_server: NodeFactory) -> None:
    node = disque_server(*ON)
    assert (node.directory / "disque.aof.progress").stat().st_mode & 0o777 == 0o600


@files
def test_restart_forgets_nothing_whether_the_file_is_on_or_not(
    disque_server: NodeFactory, options: tuple[str, ...]
) -> None:
    node = disque_server(*options)
    wire = node.wire()
    paused = wire("ADDJOB", "q", "paused", 0, "RETRY", 5)
    taken = wire("ADDJOB", "q", "taken", 0, "RETRY", 600)
    done = wire("ADDJOB", "q", "done", 0)
    assert len(ids(wire("GETJOB", "COUNT", 3, "FROM", "q"))) == 3
    assert wire("NACK", paused, "DELAY", 600) == 1
    assert wire("ACKJOB", done, "RESULT", "42") == 1
    wire = again(restart, node, disque_server)
    for id in (paused, taken):
        assert 500_000 < int(str(pairs(wire("SHOW", id))["next-requeue-within"])) <= 600_500
    assert wire("WAITJOB", 1, done) == [[done, b"acked", b"42"]]
    assert (node.directory / "disque.aof.progress").exists() == bool(options)


def test_a_full_disk_costs_the_progress_file_only_until_there_is_room(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*ON, "--appendfsync", "no")
    wire = node.wire()
    added = [wire("ADDJOB", "q", "x" * 100, 0, "RETRY", 1) for _ in range(50)]
    pid = node.process.pid
    size = (node.directory / "disque.aof.progress").stat().st_size
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + 10, -1))
    assert ids(wire("GETJOB", "FROM", "q")) == added[:1]
    wait_until(lambda: node.info("persistence")["progress_file_status"] == "err")
    assert ids(wire("GETJOB", "FROM", "q")) == added[1:2]
    assert not (node.directory / "disque.aof.progress").exists()
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (-1, -1))
    kill(node)
    wire = disque_server(*ON, cwd=node.directory).wire()
    wait_until(lambda: wire("QLEN", "q") == 50)  # after the retry time: nothing is known
