"""The append-only file of a real node proves itself: what is changed in it is found, and repaired
or told."""

import os
import random
from contextlib import closing
from pathlib import Path

import pytest

from disque_trio.aof.check import main
from disque_trio.aof.checksums import BLOCK, ENDING, CheckedFile, read_sums
from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory, wait_until

AOF = ("--appendonly", "yes")
FLIPS = 300
FLIPS_NIGHTLY = 10_000
NIGHTLY = (pytest.mark.nightly, pytest.mark.timeout(3600))


def work(node: LiveNode, jobs: int = 200) -> None:
    """Make records of all kinds, and a rewrite among them."""
    with closing(node.wire()) as wire:
        wire("QSET", "q", "ATTEMPTS", 3, "DEAD", "dead", "BACKOFF", "0.01")
        wire("CRON", "SET", "often", "@every 1s", "ticks", "body")
        wait_until(lambda: wire("QLEN", "ticks"))
        wire("CRON", "DEL", "often")
        wire("PAUSE", "later", "all")
        for number in range(jobs):
            if number == jobs // 2:
                wire("BGREWRITEAOF")
                wait_until(lambda: node.info("persistence")["aof_rewrite_in_progress"] == "0")
            id = wire("ADDJOB", "q", f"body {number}", 0, "RETRY", 60)
            wire("ADDJOB", "u", "one of a kind", 0, "UNIQUE", f"key {number}", "FOR", 600)
            wire("ADDJOB", "h", bytes(range(number % 256)), 0, "HEADERS", 2, "name", "value")
            if number % 3 == 0:
                wire("UPDATEJOB", id, "BODY", "another body", "DELAY", 30)
            elif number % 3 == 1:
                wire("GETJOB", "FROM", "q")
                wire("NACK", id)
            else:
                wire("ACKJOB", id)


def path_of(node: LiveNode) -> Path:
    return node.log.parent / "disque.aof"


def jobs_of(node: LiveNode) -> dict[bytes, object]:
    """The bodies of all jobs by their ids."""
    with closing(node.wire()) as wire:
        wait_until(lambda: wire("PING") == b"PONG")
        reply = wire("JSCAN", "BUSYLOOP", "REPLY", "all")
        assert isinstance(reply, list)
        shown = [dict(zip(job[::2], job[1::2], strict=True)) for job in reply[1]]
        return {job[b"id"]: job[b"body"] for job in shown if job[b"state"] != b"acked"}


@pytest.fixture
def stopped(disque_server: NodeFactory) -> tuple[Path, dict[bytes, object]]:
    """The file of a node that has stopped, and its jobs."""
    node = disque_server(*AOF)
    work(node)
    jobs = jobs_of(node)
    assert node.stop() == 0
    return path_of(node), jobs


def flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b", buffering=0) as file:
        byte = os.pread(file.fileno(), 1, at)[0]
        os.pwrite(file.fileno(), bytes((byte ^ 1 << bit,)), at)


@pytest.mark.parametrize("flips", [FLIPS, pytest.param(FLIPS_NIGHTLY, marks=NIGHTLY)])
def test_each_flipped_bit_is_found(
    disque_server: NodeFactory, capsys: pytest.CaptureFixture[str], flips: int
) -> None:
    node = disque_server(*AOF)
    work(node, 40)
    assert node.stop() == 0
    path = path_of(node)
    good = path.read_bytes()
    assert main([str(path)]) == 0
    assert "Checksums" not in capsys.readouterr().out  # all of the file has some
    seed = random.randrange(1 << 30)
    print(f"seed {seed}, {len(good)} bytes")
    dice = random.Random(seed)
    for _ in range(flips):
        at, bit = dice.randrange(len(good)), dice.randrange(8)
        flip(path, at, bit)
        assert main([str(path)]) == 1
        assert f"Flipped bit: offset={at}, bit={bit}: " in capsys.readouterr().out
        flip(path, at, bit)
    assert path.read_bytes() == good


def test_a_node_repairs_flipped_bits_at_its_start(
    stopped: tuple[Path, dict[bytes, object]], disque_server: NodeFactory
) -> None:
    path, jobs = stopped
    good = path.read_bytes()
    dice = random.Random(1)
    for block in range(0, len(good), BLOCK):
        flip(path, dice.randrange(block, min(block + BLOCK, len(good))), dice.randrange(8))
    node = disque_server(*AOF, cwd=path.parent)
    assert jobs_of(node) == jobs
    places = -(-len(good) // BLOCK)
    assert node.info("persistence")["aof_damaged_places"] == str(places)
    assert node.info("persistence")["aof_lost_records"] == "0"
    wait_until(lambda: covers_all(path))  # it was made again
    assert node.stop() == 0
    assert main([str(path)]) == 0
    assert jobs_of(disque_server(*AOF, cwd=path.parent)) == jobs


def covers_all(path: Path) -> bool:
    """Whether the file has checksums for all that is in it, and they match."""
    with path.open("rb") as file:
        checked = CheckedFile(file.fileno(), read_sums(str(path)))
        checked.read()
        return checked.covered == checked.size and not checked.marks


def test_damaged_jobs_are_left_out_and_named_and_all_others_are_there(
    stopped: tuple[Path, dict[bytes, object]], disque_server: NodeFactory
) -> None:
    path, jobs = stopped
    good = path.read_bytes()
    at = good.index(b"body 61")
    damaged = good[:at] + b"fake no" + good[at + 7 :]
    path.write_bytes(damaged)
    node = disque_server(*AOF, cwd=path.parent)
    found = jobs_of(node)
    gone = jobs.keys() - found.keys()
    assert found == {id: body for id, body in jobs.items() if id not in gone}
    block = at // BLOCK * BLOCK
    for id in gone:
        assert block - 4096 < good.rindex(id) < block + BLOCK
        assert id.decode() in node.log.read_text()
    assert 0 < len(gone) <= int(node.info("persistence")["aof_lost_records"])
    assert path.with_name("disque.aof.damaged").read_bytes()[: len(good)] == damaged
    wait_until(lambda: covers_all(path))
    assert node.stop() == 0
    assert main([str(path)]) == 0


def test_a_file_of_an_older_release_gets_checksums(disque_server: NodeFactory) -> None:
    node = disque_server(*AOF)
    work(node)
    jobs = jobs_of(node)
    node.stop()
    path = path_of(node)
    sums = path.with_name(path.name + ENDING)
    sums.unlink()
    assert main([str(path)]) == 0
    node = disque_server(*AOF, cwd=path.parent)
    assert jobs_of(node) == jobs
    wait_until(lambda: covers_all(path))
    node.kill()
    node = disque_server(*AOF, cwd=path.parent)
    assert jobs_of(node) == jobs
    assert node.info("persistence")["aof_damaged_places"] == "0"


@pytest.mark.parametrize("change", ["appended", "rewritten", "cut", "copied"])
def test_what_an_older_release_or_an_operator_did_to_the_file_is_no_damage(
    disque_server: NodeFactory, change: str
) -> None:
    """Such a release leaves the checksums as they are."""
    node = disque_server(*AOF)
    work(node)
    node.stop()
    path = path_of(node)
    sums = path.with_name(path.name + ENDING)
    old = sums.read_bytes()
    before = path.read_bytes()
    node = disque_server(*AOF, cwd=path.parent)
    with closing(node.wire()) as wire:
        if change == "rewritten":
            for id in list(jobs_of(node))[:20]:
                wire("ACKJOB", id)
            wire("BGREWRITEAOF")
            wait_until(lambda: node.info("persistence")["aof_rewrite_in_progress"] == "0")
        wire("ADDJOB", "q", "new", 0)
    node.stop()
    if change == "cut":
        path.write_bytes(before[: len(before) * 2 // 3])
    elif change == "copied":
        sums.write_bytes(sums.read_bytes())
        path.write_bytes(before)  # an older copy, with the newer checksums
    if change in ("appended", "rewritten"):
        sums.write_bytes(old)
    node = disque_server(*AOF, cwd=path.parent)
    jobs = jobs_of(node)
    assert node.info("persistence")["aof_damaged_places"] == "0"
    assert node.info("persistence")["aof_lost_records"] == "0"
    wait_until(lambda: covers_all(path))
    node.stop()
    assert jobs_of(disque_server(*AOF, cwd=path.parent)) == jobs


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_a_killed_node_goes_on_with_its_checksums(disque_server: NodeFactory, policy: str) -> None:
    args = (*AOF, "--appendfsync", policy)
    node = disque_server(*args)
    path = path_of(node)
    for _ in range(3):
        work(node)
        jobs = jobs_of(node)
        node.kill()
        node = disque_server(*args, cwd=path.parent)
        assert jobs_of(node).items() >= jobs.items()
        assert node.info("persistence")["aof_damaged_places"] == "0"
    if policy != "no":
        wait_until(lambda: covers_all(path))
    node.stop()
    assert covers_all(path)


def test_switching_the_file_off_and_on_begins_its_checksums_again(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*AOF)
    path = path_of(node)
    work(node)
    with closing(node.wire()) as wire:
        wire("CONFIG", "SET", "appendonly", "no")
        assert covers_all(path)
        wire("ADDJOB", "q", "while it is off", 0)
        wire("BGREWRITEAOF")
        wait_until(lambda: covers_all(path))
        wire("CONFIG", "SET", "appendonly", "yes")
        wait_until(lambda: node.info("persistence")["aof_state"] == "on")
        wire("ADDJOB", "q", "while it is on", 0)
    wait_until(lambda: covers_all(path))
    jobs = jobs_of(node)
    node.stop()
    assert covers_all(path)
    assert jobs_of(disque_server(*AOF, cwd=path.parent)) == jobs


def test_a_restart_and_a_last_rewrite_leave_all_of_the_file_covered(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*AOF)
    path = path_of(node)
    work(node)
    with pytest.raises(EOFError):
        node.wire()("SHUTDOWN", "REWRITE-AOF")
    node.process.wait(HANG_SECONDS)
    assert covers_all(path)
    node = disque_server("--aof-enqueue-jobs-once", "yes", cwd=path.parent)
    assert jobs_of(node)
    assert node.info("persistence")["aof_damaged_places"] == "0"


def test_a_compaction_of_a_damaged_file_is_given_up_for_a_dump(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*AOF)
    path = path_of(node)
    work(node)
    jobs = jobs_of(node)
    wait_until(lambda: covers_all(path))
    flip(path, path.read_bytes().index(b"body 52"), 0)
    node.wire()("BGREWRITEAOF")
    wait_until(lambda: node.info("persistence")["aof_damaged_places"] == "1")
    wait_until(lambda: covers_all(path))
    node.kill()
    assert jobs_of(disque_server(*AOF, cwd=path.parent)) == jobs
