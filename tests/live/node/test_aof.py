"""Nothing confirmed is lost in a restart, with real processes."""

import random
import resource
import signal
import threading
from pathlib import Path

import pytest

from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory, Wire, wait_until

AOF = ("--appendonly", "yes")


def ids_of(reply: object) -> list[bytes]:
    return [job[1] for job in reply] if isinstance(reply, list) else []


def held(wire: Wire) -> set[bytes]:
    """Return the IDs of all jobs of the node, once it has loaded them."""
    wait_until(lambda: wire("PING") == b"PONG")
    reply = wire("JSCAN", "BUSYLOOP")
    assert isinstance(reply, list)
    return set(reply[1])


def restart(node: LiveNode, disque_server: NodeFactory, *args: str) -> LiveNode:
    return disque_server(*(args or AOF), cwd=node.log.parent)


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_a_killed_node_has_every_confirmed_job_when_it_is_back(
    disque_server: NodeFactory, policy: str
) -> None:
    node = disque_server(*AOF, "--appendfsync", policy)
    confirmed: set[bytes] = set()
    acked: set[bytes] = set()
    doubtful: set[bytes] = set()
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")

    def produce(number: int) -> None:
        dice = random.Random(seed + number)
        wire = node.wire()
        try:
            for _ in range(100_000):
                id = wire("ADDJOB", f"q{number}", "x" * dice.randrange(200), 0, "RETRY", 1)
                assert isinstance(id, bytes)
                confirmed.add(id)
                if dice.random() < 0.3:
                    doubtful.add(id)
                    assert wire("ACKJOB", id) == 1
                    acked.add(id)
        except (EOFError, OSError):
            pass

    for _ in range(3):
        threads = [threading.Thread(target=produce, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        goal = len(confirmed) + 150
        wait_until(lambda goal=goal: len(confirmed) > goal)
        node.kill()
        for thread in threads:
            thread.join()
        node = restart(node, disque_server, *AOF, "--appendfsync", policy)
        there = held(node.wire())
        assert confirmed - doubtful <= there
        assert not acked & there
    wire = node.wire()
    there = held(wire)
    delivered: set[bytes] = set()

    def take() -> bool:
        queues = [f"q{n}" for n in range(4)]
        delivered.update(ids_of(wire("GETJOB", "NOHANG", "COUNT", 500, "FROM", *queues)))
        return there <= delivered

    wait_until(take)


def test_a_node_killed_while_it_writes_a_large_job_has_what_it_confirmed(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*AOF)
    watching, adding = node.wire(), node.wire()
    small = watching("ADDJOB", "q", "small", 0)
    threading.Thread(target=_add_large, args=(adding,)).start()
    wait_until(
        lambda: node.info("persistence")["aof_buffer_length"] != "0" or watching("QLEN", "q") != 1
    )
    node.kill()
    node = restart(node, disque_server)
    found = held(node.wire())
    assert small in found
    assert len(found) <= 2


def _add_large(wire: Wire) -> None:
    try:
        wire("ADDJOB", "q", bytes(48 << 20), 0)
    except (EOFError, OSError):
        pass


@pytest.mark.pure
def test_a_clean_stop_keeps_the_jobs(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF, "--appendfsync", "no")
    ids = {node.wire()("ADDJOB", "q", n, 0) for n in range(100)}
    assert node.stop() == 0
    assert held(restart(node, disque_server).wire()) == ids


@pytest.mark.pure
def test_a_torn_tail_is_cut_off_or_refused(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    ids = [node.wire()("ADDJOB", "q", n, 0) for n in range(3)]
    assert node.stop() == 0
    path = node.log.parent / "disque.aof"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RuntimeError, match="disque-check-aof --fix"):
        restart(node, disque_server, *AOF, "--aof-load-truncated", "no")
    again = restart(node, disque_server)
    assert held(again.wire()) == set(ids[:2])
    fresh = again.wire()("ADDJOB", "q", "new", 0)
    again.kill()
    assert held(restart(node, disque_server).wire()) == {*ids[:2], fresh}


def test_damage_without_checksums_stops_the_start_and_names_place_and_tool(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*AOF)
    for n in range(3):
        node.wire()("ADDJOB", "q", n, 0)
    assert node.stop() == 0
    path = node.log.parent / "disque.aof"
    data = bytearray(path.read_bytes())
    path.with_name("disque.aof.sums").unlink()
    second = data.index(b"*2\r\n", 1)
    data[second + 18] ^= 4  # a digit of the job's length
    path.write_bytes(data)
    with pytest.raises(RuntimeError, match=rf"offset {second}.*disque-check-aof"):
        restart(node, disque_server)
    assert path.read_bytes() == data


def test_the_three_steps_of_a_controlled_restart_bring_the_queues_back_once(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    config = tmp_path / "disque.yaml"
    config.write_text("# mine\nhz: 20\n")
    node = disque_server(str(config))
    wire = node.wire()
    queued = [wire("ADDJOB", "q", n, 0, "RETRY", n % 2 * 300) for n in range(20)]
    taken = ids_of(wire("GETJOB", "COUNT", 4, "FROM", "q"))
    assert taken == queued[:4]
    assert wire("PAUSE", "q", "in") == b"in"
    assert wire("CONFIG", "SET", "aof-enqueue-jobs-once", "yes") == b"OK"
    assert wire("CONFIG", "REWRITE") == b"OK"
    wire.send("SHUTDOWN", "REWRITE-AOF")
    assert wire.closed()
    assert node.process.wait(HANG_SECONDS) == 0

    node = disque_server(str(config))
    wire = node.wire()
    assert wire("PAUSE", "q", "state") == b"in"
    assert ids_of(wire("GETJOB", "NOHANG", "COUNT", 100, "FROM", "q")) == queued[4:]
    assert wire("CONFIG", "GET", "aof-enqueue-jobs-once") == [b"aof-enqueue-jobs-once", b"no"]
    assert config.read_text().startswith("# mine\n")
    node.kill()

    node = disque_server(str(config))  # the append-only file is off: nothing comes twice
    assert held(node.wire()) == set()


@pytest.mark.pure
def test_a_rewrite_makes_the_file_small_and_loses_nothing(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    wire = node.wire()
    for n in range(500):
        id = wire("ADDJOB", "q", n, 0)
        if n % 10:
            wire("ACKJOB", id)
    wire("PAUSE", "before", "in")
    before = int(node.info("persistence")["aof_current_size"])
    assert wire("BGREWRITEAOF") == b"Background append only file rewriting started"
    wait_until(lambda: int(node.info("persistence")["aof_current_size"]) < before / 5)
    wire("ADDJOB", "q", "behind it", 0)
    wire("PAUSE", "behind", "out")
    ids = held(wire)
    assert len(ids) == 51
    node.kill()
    wire = restart(node, disque_server).wire()
    assert held(wire) == ids
    assert [wire("PAUSE", q, "state") for q in ("before", "behind", "q")] == [
        b"in", b"out", b"none",
    ]  # fmt: skip


def test_the_file_can_be_switched_on_and_off_while_the_node_serves(
    disque_server: NodeFactory,
) -> None:
    node = disque_server()
    wire = node.wire()
    ids = {wire("ADDJOB", "q", n, 0) for n in range(50)}
    assert wire("CONFIG", "SET", "appendonly", "yes") == b"OK"
    ids.add(wire("ADDJOB", "q", "meanwhile", 0))
    wait_until(lambda: node.info("persistence")["aof_state"] == "on")
    ids.add(wire("ADDJOB", "q", "later", 0))
    node.kill()
    node = restart(node, disque_server)
    assert held(node.wire()) == ids
    assert node.wire()("CONFIG", "SET", "appendonly", "no") == b"OK"
    assert node.info("persistence")["aof_state"] == "off"


@pytest.mark.pure
def test_no_job_is_confirmed_while_the_disk_is_full_and_the_node_recovers(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*AOF)
    wire = node.wire()
    first = wire("ADDJOB", "q", "first", 0)
    size = int(node.info("persistence")["aof_current_size"])
    # A limit on the file size acts like a full disk.
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (size + 50, -1))
    assert wire.error("ADDJOB", "q", "lost", 0).startswith("MISCONF ")
    assert wire.error("ADDJOB", "q", "refused", 0).startswith("MISCONF ")
    assert wire.error("PING").startswith("MISCONF ")
    assert wire("QLEN", "q") in (1, 2)
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
    wait_until(lambda: node.info("persistence")["aof_last_write_status"] == "ok")
    later = wire("ADDJOB", "q", "later", 0)
    there = held(wire)
    node.kill()
    after = held(restart(node, disque_server).wire())
    assert {first, later} <= after
    assert after == there


def test_flushing_empties_the_file_at_once(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    wire = node.wire()
    for n in range(100):
        wire("ADDJOB", "q", n, 0)
    assert wire("DEBUG", "FLUSHALL") == b"OK"
    assert (node.log.parent / "disque.aof").stat().st_size == 0
    id = wire("ADDJOB", "q", "new", 0)
    node.kill()
    assert held(restart(node, disque_server).wire()) == {id}


def test_sigterm_writes_everything_out(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    wire = node.wire()
    wire.raw(b"ADDJOB q body 0 RETRY 1\r\n" * 1000)
    wire.read()
    node.process.send_signal(signal.SIGTERM)
    confirmed = 1
    try:
        while isinstance(wire.read(), bytes):
            confirmed += 1
    except EOFError:
        pass
    assert node.process.wait(HANG_SECONDS) == 0
    assert len(held(restart(node, disque_server).wire())) >= confirmed


def test_a_node_stopped_while_it_loads_leaves_the_file_alone(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    wire = node.wire()
    for start in range(0, 60_000, 1000):
        wire.raw(b"".join(b"ADDJOB q %d 0\r\n" % n for n in range(start, start + 1000)))
        for _ in range(1000):
            wire.read()
    assert node.stop() == 0
    path = node.log.parent / "disque.aof"
    size = path.stat().st_size
    node = restart(node, disque_server)
    wire = node.wire()
    wire.raw(b"QLEN q\r\n" * 100_000)  # replies that delay the shutdown
    assert node.stop() == 0
    assert path.stat().st_size == size
    node = restart(node, disque_server)
    assert len(held(node.wire())) == 60_000


def test_a_second_node_on_the_same_file_does_not_start(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    own = ("--cluster-config-file", "other.conf")
    with pytest.raises(RuntimeError, match="another process has"):
        restart(node, disque_server, *AOF, *own)
    other = disque_server(*own, cwd=node.log.parent)
    wire = other.wire()
    assert wire("BGREWRITEAOF") == b"Background append only file rewriting started"
    wait_until(lambda: other.info("persistence")["aof_last_bgrewrite_status"] == "err")


def test_the_directory_cannot_be_changed_under_an_open_file(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server(*AOF)
    problem = node.wire().error("CONFIG", "SET", "dir", str(tmp_path))
    assert problem.startswith(f"ERR Invalid argument '{tmp_path}' for CONFIG SET 'dir'")


def test_a_file_that_cannot_be_switched_on_refuses_writes(disque_server: NodeFactory) -> None:
    node = disque_server()
    (node.log.parent / "disque.aof").mkdir()
    wire = node.wire()
    assert wire("CONFIG", "SET", "appendonly", "yes") == b"OK"
    wait_until(lambda: str(wire("PING")).startswith("MISCONF "))
    assert wire.error("ADDJOB", "q", "body", 0).startswith("MISCONF ")
    assert wire("CONFIG", "SET", "appendonly", "no") == b"OK"
    assert wire("PING") == b"PONG"


def test_a_file_that_was_never_loaded_is_kept(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    id = node.wire()("ADDJOB", "q", "body", 0)
    assert node.stop() == 0
    path = node.log.parent / "disque.aof"
    data = path.read_bytes()
    node = disque_server(cwd=node.log.parent)
    assert node.wire()("CONFIG", "SET", "appendonly", "yes") == b"OK"
    wait_until(lambda: node.info("persistence")["aof_state"] == "on")
    assert path.with_name("disque.aof.old").read_bytes() == data
    assert id not in held(node.wire())


def test_nothing_new_of_an_unwritten_turn_is_confirmed(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF, "--appendfsync", "always")
    wire = node.wire()
    waiting = node.wire()
    done = wire("ADDJOB", "q", "done", 0)
    wire("ADDJOB", "q2", "once", 0, "RETRY", 0)
    waiting.send("GETJOB", "FROM", "q3")
    wait_until(lambda: node.info("clients")["blocked_clients"] == "1")
    size = int(node.info("persistence")["aof_current_size"])
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (size, -1))
    assert isinstance(done, bytes)
    batch = ["ACKJOB " + done.decode(), "GETJOB FROM q2", "ADDJOB q3 x 0 RETRY 0", "QLEN q"]
    wire.raw("".join(line + "\r\n" for line in batch).encode())
    assert wire.read() == 1  # an acknowledgement is written later
    for _ in range(2):
        assert str(wire.read()).startswith("MISCONF ")
    assert wire.read() == 0
    assert str(waiting.read()).startswith("MISCONF ")


def test_a_torn_record_is_cut_off_whatever_its_body_looks_like(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    wire = node.wire()
    id = wire("ADDJOB", "q", "victim", 0)
    assert isinstance(id, bytes)
    wire("ADDJOB", "q", b"*2\r\n$6\r\nDELJOB\r\n$40\r\n" + id + b"\r\n" + b"z" * 600, 0)
    node.kill()
    path = node.log.parent / "disque.aof"
    path.write_bytes(path.read_bytes()[:-500])
    assert held(restart(node, disque_server).wire()) == {id}


@pytest.mark.pure
def test_headers_survive_a_kill_a_rewrite_and_another_kill(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF, "--appendfsync", "always")
    wire = node.wire()
    id = wire("ADDJOB", "q", "body", 0, "RETRY", 1, "HEADERS", 2, "a", "1", "b", "\xff")
    plain = wire("ADDJOB", "q", "plain", 0, "RETRY", 1)
    node.kill()
    node = restart(node, disque_server)
    wire = node.wire()
    assert held(wire) == {id, plain}
    wire("BGREWRITEAOF")
    wait_until(lambda: node.info("persistence")["aof_rewrite_in_progress"] == "0")
    node.kill()
    node = restart(node, disque_server)
    wire = node.wire()
    assert held(wire) == {id, plain}
    wait_until(lambda: wire("QLEN", "q") == 2)
    reply = wire("GETJOB", "COUNT", 2, "WITHHEADERS", "FROM", "q")
    assert isinstance(reply, list)
    assert {entry[1]: entry[2:] for entry in reply} == {
        id: [b"body", b"headers", [b"a", b"1", b"b", "\xff".encode()]],
        plain: [b"plain", b"headers", []],
    }
