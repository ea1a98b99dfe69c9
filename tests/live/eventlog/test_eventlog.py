"""The event log of real nodes: every event once, whatever dies."""

import gzip
import json
import os
import re
import resource
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory, Wire, wait_until
from tests.support.small_disk import small_disk

ON = ("--event-log", "yes")


class Events:
    """Return the content of the closed files of ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.all: list[dict[str, object]] = []
        for path in sorted(directory.glob("events-*")):
            if path.name.endswith((".jsonl", ".jsonl.gz")):
                data = path.read_bytes()
                text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
                assert text.endswith("\n"), path
                events = map(json.loads, text.splitlines())
                self.all += [event for event in events if event["event"] != "segment"]

    def of(self, name: str) -> list[dict[str, object]]:
        return [event for event in self.all if event["event"] == name]

    def ids(self, name: str) -> list[str]:
        return [str(event["id"]) for event in self.of(name)]


def log_of(node: LiveNode) -> Path:
    return node.directory / "events"


def value(node: LiveNode, field: str) -> int:
    return int(node.info("persistence")[f"event_log_{field}"])


def writer(node: LiveNode) -> int:
    """Wait for the process that writes the log of ``node``, and return it."""
    wait_until(lambda: value(node, "process_id"))
    return value(node, "process_id")


def settled(node: LiveNode) -> None:
    """Wait until all events are in files."""
    wait_until(lambda: value(node, "process_id") and value(node, "buffer_length") == 0)


def open_files(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.endswith(".open")]


def add(wire: Wire, count: int, queue: str = "q", *options: str | int) -> list[str]:
    """Add jobs of 10 bytes; return their ids."""
    for _ in range(count):
        wire.send("ADDJOB", queue, "x" * 10, 0, *options)
    return [text(wire.read()) for _ in range(count)]


def take(wire: Wire, count: int, queue: str = "q") -> list[str]:
    """Take this many jobs; return their ids."""
    ids: list[str] = []
    while len(ids) < count:
        reply = wire("GETJOB", "NOHANG", "COUNT", count - len(ids), "FROM", queue)
        assert isinstance(reply, list), reply
        ids += [text(job[1]) for job in reply]
    return ids


def text(reply: object) -> str:
    assert isinstance(reply, bytes), reply
    return reply.decode()


@pytest.mark.pure
def test_each_event_of_a_job_is_one_line_with_its_fields(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    wire("CLIENT", "SETNAME", "shop-1")
    ids = add(wire, 300, "orders", "RETRY", 60, "TTL", 3600)
    assert sorted(take(wire, 300, "orders")) == sorted(ids)
    assert wire("NACK", *ids[:100]) == 100
    again = take(wire, 100, "orders")
    assert sorted(again) == sorted(ids[:100])
    assert wire("ACKJOB", *ids) == 300
    named = text(wire("HELLO")[1])  # type: ignore[index]
    assert node.stop() == 0

    events = Events(log_of(node))
    assert not open_files(log_of(node))
    assert {event["node"] for event in events.all} == {named}
    for name, expected in (
        ("added", ids),
        ("delivered", ids + again),
        ("nacked", ids[:100]),
        ("acked", ids),
    ):
        assert Counter(events.ids(name)) == Counter(expected), name
    reasons = Counter(str(event["reason"]) for event in events.of("queued"))
    assert reasons == {"add": 300, "nack": 100}
    for event in events.of("added"):
        facts = {key: event[key] for key in ("queue", "client", "size", "repl", "retry", "ttl")}
        assert facts == {
            "queue": "orders",
            "client": "shop-1",
            "size": 10,
            "repl": 1,
            "retry": 60,
            "ttl": 3600,
        }
        assert event["delay"] == 0
        assert isinstance(event["ctime"], int)
    second = events.of("delivered")[300:]
    assert {(event["nacks"], event["deliveries"]) for event in second} == {(1, 0)}
    times = [event["time"] for event in events.all]
    assert times == sorted(times, key=str)


def test_a_killed_writer_neither_loses_nor_repeats_anything_under_load(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*ON, "--event-log-segment-size", "1mb")
    added: list[str] = []
    acked: list[str] = []
    stop = threading.Event()

    def work() -> None:
        wire = node.wire()
        while not stop.is_set():
            # No faster than a writer on a busy machine: excess events would be dropped.
            wait_until(lambda: value(node, "buffer_length") < 4 << 20)
            ids = add(wire, 100)
            added.extend(ids)
            assert wire("ACKJOB", *take(wire, 100)) == 100
            acked.extend(ids)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(3):
            pid = writer(node)
            before = value(node, "events_written")
            wait_until(lambda before=before: value(node, "events_written") > before + 500)
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda pid=pid: value(node, "process_id") not in (pid, 0))
    finally:
        stop.set()
        thread.join(HANG_SECONDS)
    assert value(node, "events_dropped") == 0
    assert node.stop() == 0
    events = Events(log_of(node))
    assert Counter(events.ids("added")) == Counter(added)
    assert Counter(events.ids("delivered")) == Counter(added)
    assert Counter(events.ids("acked")) == Counter(acked)
    assert not open_files(log_of(node))


def test_the_writer_of_a_killed_node_closes_its_file_and_ends(disque_server: NodeFactory) -> None:
    node = disque_server(*ON)
    ids = add(node.wire(), 200)
    settled(node)
    pid = writer(node)
    node.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert not open_files(log_of(node))
    assert Events(log_of(node)).ids("added") == ids
    later = disque_server(*ON, cwd=node.directory)
    ids += add(later.wire(), 10)
    assert later.stop() == 0
    assert Counter(Events(log_of(node)).ids("added")) == Counter(ids)


def test_files_of_a_killed_node_and_writer_are_closed_by_the_next_start(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*ON)
    ids = add(node.wire(), 200)
    settled(node)
    pid = writer(node)
    os.kill(pid, signal.SIGSTOP)
    node.kill()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    (left,) = log_of(node).iterdir()
    assert left.name.endswith(".open")
    with left.open("ab") as file:
        file.write(b'{"time":17952')
    disque_server(*ON, cwd=node.directory)
    wait_until(lambda: not left.exists())
    assert Events(log_of(node)).ids("added") == ids


def test_a_restart_continues_in_a_new_file(disque_server: NodeFactory) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    ids = add(wire, 500)
    wire.send("RESTART")
    assert wire.closed()
    wire = node.wire()
    wait_until(lambda: wire("PING") == b"PONG")
    assert Events(log_of(node)).ids("added") == ids
    assert wire("ACKJOB", *take(wire, 500)) == 500
    assert node.stop() == 0
    events = Events(log_of(node))
    assert Counter(events.ids("added")) == Counter(events.ids("acked")) == Counter(ids)


def test_it_can_be_turned_on_and_off_while_the_node_serves(disque_server: NodeFactory) -> None:
    node = disque_server()
    wire = node.wire()
    assert value(node, "enabled") == 0
    add(wire, 5)
    assert wire("CONFIG", "SET", "event-log", "yes") == b"OK"
    ids = add(wire, 7)
    assert wire("CONFIG", "SET", "event-log", "no") == b"OK"
    add(wire, 5)
    wait_until(lambda: Events(log_of(node)).ids("added") == ids)
    wait_until(lambda: value(node, "process_id") == 0)
    assert wire("CONFIG", "SET", "event-log", "yes", "event-log-compress", "yes") == b"OK"
    more = add(wire, 3)
    assert node.stop() == 0
    assert Events(log_of(node)).ids("added") == ids + more
    assert len(list(log_of(node).glob("*.gz"))) == 1


def test_nodes_can_share_a_directory(disque_server: NodeFactory, tmp_path: Path) -> None:
    shared = ("--event-log-dir", str(tmp_path / "shared"), "--event-log-segment-size", "20kb")
    nodes = [disque_server(*ON, *shared) for _ in range(2)]
    ids = [id for node in nodes for id in add(node.wire(), 300)]
    for node in nodes:
        assert node.stop() == 0
    events = Events(tmp_path / "shared")
    assert Counter(events.ids("added")) == Counter(ids)
    assert len({event["node"] for event in events.all}) == 2


def test_names_of_any_bytes_are_logged(disque_server: NodeFactory) -> None:
    node = disque_server(*ON)
    names = [b"caf\xc3\xa9", b"\xff\xfe", b'say "hi"\r\n', b"\\"]
    for name in names:
        node.wire()("ADDJOB", name, "", 0)
    assert node.stop() == 0
    queues = [event["queue"] for event in Events(log_of(node)).of("added")]
    assert queues == ["café", "\\xff\\xfe", 'say "hi"\r\n', "\\"]


def test_a_failing_disk_costs_events_but_no_job(disque_server: NodeFactory) -> None:
    node = disque_server(*ON)
    wire = node.wire()
    first = add(wire, 10)
    settled(node)
    # A limit on the size of files simulates a full disk.
    pid = writer(node)
    size = value(node, "current_size")
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + 50, -1))
    second = add(wire, 1000)
    wait_until(lambda: node.info("persistence")["event_log_last_write_status"] == "err")
    assert wire("QLEN", "q") == 1010
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (-1, -1))
    wait_until(lambda: node.info("persistence")["event_log_last_write_status"] == "ok")
    settled(node)
    assert node.stop() == 0
    assert Events(log_of(node)).ids("added") == first + second


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    with small_disk(tmp_path / "small", 1) as where:
        yield where


def test_a_full_disk_costs_events_that_are_counted_but_no_job(
    disque_server: NodeFactory, disk: Path
) -> None:
    node = disque_server(*ON, "--event-log-dir", str(disk / "events"))
    wire = node.wire()
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(900 << 10))
    ids: list[str] = []

    def until_events_are_dropped() -> bool:
        ids.extend(add(wire, 5000))
        assert wire("ACKJOB", *take(wire, 5000)) == 5000
        return value(node, "events_dropped") > 0

    wait_until(until_events_are_dropped)
    assert node.info("persistence")["event_log_last_write_status"] == "err"
    # With free space, the log continues, and reports what is missing.
    assert wire("CONFIG", "SET", "event-log-dir", str(disk.parent / "roomy")) == b"OK"
    ballast.unlink()
    settled(node)
    last = add(wire, 1)
    settled(node)
    dropped = value(node, "events_dropped")
    written = value(node, "events_written")
    assert node.stop() == 0
    found = Events(disk / "events").all
    events = Events(disk.parent / "roomy")
    assert events.ids("added")[-1:] == last
    assert sum(int(str(event["count"])) for event in events.of("dropped")) == dropped
    logged = [event for event in found + events.all if "id" in event]
    assert len(logged) == written
    keys = [(event["event"], event["id"]) for event in logged]
    assert len(keys) == len(set(keys))


def heads(directory: Path) -> list[dict[str, object]]:
    """The lines in the closed files of ``directory`` about these files."""
    texts = [path.read_text() for path in sorted(directory.glob("events-*.jsonl"))]
    lines = map(json.loads, "".join(texts).splitlines())
    return [line for line in lines if line["event"] == "segment"]


def test_the_log_says_which_nodes_there_are_and_how_long_it_has_been_written(
    disque_server: NodeFactory,
) -> None:
    one, two = disque_server(*ON), disque_server()
    ids = [str(node.ask("CLUSTER", "MYID").decode()) for node in (one, two)]  # type: ignore[union-attr]
    add(one.wire(), 1)
    settled(one)
    assert one.ask("CLUSTER", "MEET", "127.0.0.1", two.port) == b"OK"
    wait_until(lambda: one.sees(2) and two.sees(2))
    add(two.wire(), 1)
    assert two.ask("CONFIG", "SET", "event-log", "yes") == b"OK"
    settled(one)
    assert two.ask("QSET", "q", "ATTEMPTS", 3) == b"OK"
    assert two.ask("CONFIG", "SET", "event-log", "no") == b"OK"
    assert (one.stop(), two.stop()) == (0, 0)

    first, *others = heads(log_of(one))
    assert first["nodes"] == [ids[0]]
    assert first["up"] == first["since"]
    assert re.fullmatch("[0-9a-f]{40}", str(first["run"]))
    assert [head["nodes"] for head in others] == [sorted(ids)]
    assert [event["reason"] for event in Events(log_of(one)).of("stopped")] == ["shutdown"]

    (head,) = heads(log_of(two))
    assert head["nodes"] == sorted(ids)
    assert head["up"] < head["since"]  # type: ignore[operator]
    assert head["run"] != first["run"]
    (policy,) = Events(log_of(two)).of("policy")
    assert (policy["queue"], policy["what"]) == ("q", "QSET ATTEMPTS 3")
    assert [event["reason"] for event in Events(log_of(two)).of("stopped")] == ["switched-off"]
