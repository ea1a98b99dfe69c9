"""The files next to nodes.conf: policies and extensions, and schedules."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from disque_trio.cluster.members import Member
from disque_trio.cluster.membership import Membership
from disque_trio.config import Config
from disque_trio.node import shared_file
from disque_trio.node.core.shared.policies import Policy
from disque_trio.node.core.shared.version_words import CHANGES, PIECE
from disque_trio.node.core.shared.versions import Entry
from disque_trio.node.shared_file import (
    SharedFileError,
    bindings_file,
    pauses_file,
    policies_file,
    schedules_file,
)
from disque_trio.protocol.bus import PacketWriter
from tests.support.harness import HANG_SECONDS
from tests.support.node_bench import Bench

C_NODE, CAPABLE = b"c" * 40, b"d" * 40


class Stage:
    """A node with a file, which can be started again."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "nodes.conf.policies"
        self.config = Config({"cluster-config-file": str(directory / "nodes.conf")})
        self.warnings: list[dict[str, Any]] = []
        self.start()

    def start(self) -> None:
        self.membership = Membership(
            PacketWriter(b"a" * 40, 1),
            lambda *args: None,
            SimpleNamespace(),  # type: ignore[arg-type]
        )
        for id in (C_NODE, CAPABLE):
            self.membership._known[id] = Member(id, "10.0.0.1", 1, 0, 0)
        self.membership._members.update()
        self.bench = Bench(peers=self.membership)
        log: Any = SimpleNamespace(warning=lambda text, **fields: self.warnings.append(fields))
        self.file = policies_file(self.config, self.bench.node, self.membership, log)
        self.schedules = schedules_file(self.config, self.bench.node, log)
        self.bindings = bindings_file(self.config, self.bench.node, log)
        self.pauses = pauses_file(self.config, self.bench.node, log)
        self.bench.node.queue_pauses.resume()

    def hear(self, id: bytes, extensions: int) -> None:
        self.membership._known[id].extensions = extensions
        self.membership._members.update(False)

    def hear_policy(self, name: bytes) -> None:
        """Receive a policy that another node has changed."""
        entry = Entry(name, Policy(name), 9, b"f" * 40, 0)
        self.bench.node.policy_sharing.on_packet(b"f" * 40, [(1, entry.fields())])


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A disk that is full while the list is not empty."""
    full: list[bool] = []
    replace, append = shared_file.replace_file, shared_file.append_to_file

    def replacing(path: str, data: bytes) -> None:
        if full:
            raise OSError(28, os.strerror(28))
        replace(path, data)

    def appending(path: str, data: bytes) -> None:
        append(path, data[: len(data) // 2] if full else data)
        if full:
            raise OSError(28, os.strerror(28))

    monkeypatch.setattr(shared_file, "replace_file", replacing)
    monkeypatch.setattr(shared_file, "append_to_file", appending)
    return full


def test_a_policy_is_on_the_disk_before_the_reply(stage: Stage) -> None:
    assert not stage.path.exists()
    assert stage.bench("QSET", "mail.*", "TTL", 5) == b"OK"
    before = stage.bench("QGET")
    stage.start()  # as after kill -9
    assert stage.bench("QGET") == before
    stage.bench("QDEL", "mail.*")
    stage.start()
    assert stage.bench("QGET") == []
    assert stage.bench.node.policies.clock == 2


def test_where_nothing_is_used_there_is_no_file(stage: Stage) -> None:
    stage.bench("QDEL", "q")
    stage.bench.error("QSET", "q", "TTL", "x")
    stage.file.close()
    assert not stage.path.exists()


def test_what_a_killed_node_left_is_removed_at_the_start(stage: Stage) -> None:
    leftover = stage.path.with_name(f".{stage.path.name}.abcdefgh.tmp")
    leftover.write_bytes(b"half")
    stage.start()
    assert not leftover.exists()


async def test_what_other_nodes_tell_is_written_away_from_the_turns(stage: Stage) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.file.run)
        await wait_all_tasks_blocked()
        stage.bench("QSET", "own", "TTL", 1)
        stage.hear_policy(b"far")
        assert b"far" not in stage.path.read_bytes()
        with trio.fail_after(HANG_SECONDS):
            while b"far" not in stage.path.read_bytes():
                await trio.sleep(0)
        stage.hear(CAPABLE, 1)
        with trio.fail_after(HANG_SECONDS):
            while b"node " + CAPABLE not in stage.path.read_bytes():
                await trio.sleep(0)
        nursery.cancel_scope.cancel()
    stage.start()
    assert [one[1] for one in stage.bench("QGET")] == [b"far", b"own"]  # type: ignore[attr-defined]


def test_what_is_not_written_yet_is_written_when_the_process_ends(stage: Stage) -> None:
    stage.hear_policy(b"far")
    stage.file.close()
    assert b"far" in stage.path.read_bytes()


def test_who_announced_extensions_is_remembered(stage: Stage) -> None:
    stage.hear(CAPABLE, 1)
    stage.file.close()
    stage.start()
    assert stage.membership.understands(CAPABLE)
    assert not stage.membership.understands(C_NODE)
    assert not stage.membership.extended
    stage.hear(C_NODE, 1)
    stage.file.close()
    stage.start()
    assert stage.membership.extended
    stage.hear(C_NODE, 0)  # a C node runs there now
    assert not stage.membership.extended
    stage.file.close()
    assert C_NODE not in stage.path.read_bytes()


def test_extensions_of_nodes_that_are_no_members_any_more_are_forgotten(stage: Stage) -> None:
    stage.hear(CAPABLE, 1)
    stage.membership.forget(CAPABLE)
    stage.file.close()
    assert not stage.path.exists()


def test_a_start_skips_lines_that_it_cannot_read_and_keeps_a_copy(stage: Stage) -> None:
    stage.bench("QSET", "before", "TTL", 1)
    stage.bench("QSET", "q", "TTL", 2)
    stage.bench("QSET", "the end", "TTL", 3)
    stage.file.close()
    damaged = stage.path.read_bytes().replace(b'"q" TTL', b'"q" TLT')
    stage.path.write_bytes(damaged)
    stage.start()
    assert [one[1] for one in stage.bench("QGET")] == [b"before", b"the end"]  # type: ignore[attr-defined]
    (warning,) = stage.warnings
    assert (warning["file"], warning["line"]) == (str(stage.path), "line 5: syntax error")
    copy = Path(warning["copy"])
    assert copy.read_bytes() == damaged
    assert stage.bench.info("queues")["shared_lines_skipped"] == "1"
    stage.start()  # as after kill -9
    assert list(stage.path.parent.glob("*.damaged-*")) == [copy]
    stage.file.close()
    stage.start()
    assert stage.bench.info("queues")["shared_lines_skipped"] == "0"
    stage.path.write_bytes(b"rubbish\n" + damaged)
    stage.start()
    assert len(list(stage.path.parent.glob("*.damaged-*"))) == 2


def test_a_file_of_which_no_copy_can_be_kept_is_no_obstacle(
    stage: Stage, full_disk: list[bool]
) -> None:
    stage.path.write_bytes(b"policy 1\npolicy 1 %b q TTL 1\n" % CAPABLE)
    full_disk.append(True)
    stage.start()
    assert stage.bench("QGET") == [[b"name", b"q", b"ttl", 1]]
    assert "No space left" in stage.warnings[0]["copy"]


def test_what_cannot_be_read_at_all_is_no_start(stage: Stage) -> None:
    stage.path.mkdir()
    with pytest.raises(SharedFileError, match="cannot read"):
        stage.start()


def test_a_full_disk_is_told_to_the_client_and_nothing_changes(
    stage: Stage, full_disk: list[bool]
) -> None:
    stage.bench("QSET", "q", "TTL", 1)
    full_disk.append(True)
    assert "No space left on device" in stage.bench.error("QSET", "q", "TTL", 2)
    assert "No space left on device" in stage.bench.error("QDEL", "q")
    stage.start()
    assert stage.bench("QGET", "q") == [b"name", b"q", b"ttl", 1]
    full_disk.clear()
    assert stage.bench("QDEL", "q") == 1


async def test_what_other_nodes_told_while_the_disk_was_full_is_written_later(
    stage: Stage, full_disk: list[bool], autojump_clock: trio.testing.MockClock
) -> None:
    full_disk.append(True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.file.run)
        stage.hear_policy(b"far")
        while not stage.file.problem:
            await trio.sleep(0.1)
        full_disk.clear()
        while not stage.path.exists():
            await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert b"far" in stage.path.read_bytes()


def test_the_file_follows_nodes_conf(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stage.config.cluster_config_file = "nodes.conf"
    stage.bench("QSET", "q", "TTL", 1)
    there = tmp_path / "there"
    there.mkdir()
    monkeypatch.chdir(there)
    stage.file.move()
    assert (there / "nodes.conf.policies").read_bytes() == stage.path.read_bytes()
    stage.bench("QSET", "p", "TTL", 1)
    assert b'"p"' in (there / "nodes.conf.policies").read_bytes()


# ---- appending ----------------------------------------------------------------------------------


def test_a_change_is_appended_and_the_rest_of_the_file_stays(stage: Stage) -> None:
    stage.bench("QSET", "q", "TTL", 1)
    before = stage.path.read_bytes()
    stage.bench("QSET", "q", "TTL", 2)
    stage.bench("QSET", "p", "TTL", 3)
    after = stage.path.read_bytes()
    assert after.startswith(before)
    assert after[len(before) :].count(b"\n") == 3  # the changes, and one line before them
    told = stage.bench("QGET")
    stage.start()
    assert stage.bench("QGET") == told
    stage.bench("QDEL", "q")
    assert stage.path.read_bytes().startswith(after)
    stage.start()
    assert stage.bench("QGET") == [[b"name", b"p", b"ttl", 3]]
    assert stage.bench.node.policies.clock == 4


def test_a_torn_last_change_is_cut(stage: Stage) -> None:
    stage.bench("QSET", "q", "TTL", 100)
    sizes = []
    for ttl in (200, 300):
        stage.bench("QSET", "q", "TTL", ttl)
        sizes.append(len(stage.path.read_bytes()))
    text = stage.path.read_bytes()
    for end in range(sizes[0], sizes[1]):
        for zeros in (0, 5):
            stage.path.write_bytes(text[:end] + bytes(zeros))
            stage.start()
            assert stage.bench("QGET", "q") == [b"name", b"q", b"ttl", 200]
    stage.bench("QSET", "q", "TTL", 400)  # not behind what was torn
    stage.start()
    assert stage.bench("QGET", "q") == [b"name", b"q", b"ttl", 400]


def test_a_first_change_of_which_nothing_was_written_but_zeros_is_cut(stage: Stage) -> None:
    stage.bench("QSET", "q", "TTL", 100)
    text = stage.path.read_bytes()
    stage.bench("QSET", "q", "TTL", 200)
    whole = stage.path.read_bytes()
    for end in (len(text), len(text) + 7):  # in the line before the changes
        stage.path.write_bytes(whole[:end].ljust(len(whole), b"\0"))
        stage.start()
        assert stage.warnings
        assert stage.bench("QGET", "q") == [b"name", b"q", b"ttl", 100]
        stage.bench("QSET", "q", "TTL", 200)
        stage.start()
        assert stage.bench("QGET", "q") == [b"name", b"q", b"ttl", 200]


def test_damage_before_good_changes_is_no_torn_change(stage: Stage) -> None:
    for ttl in (100, 200, 300):
        stage.bench("QSET", "q", "TTL", ttl)
    stage.path.write_bytes(stage.path.read_bytes().replace(b"TTL 200", bytes(7)))
    stage.start()
    assert len(stage.warnings) == 1
    assert stage.bench("QGET", "q") == [b"name", b"q", b"ttl", 300]


def test_a_stop_leaves_a_file_that_earlier_releases_read(stage: Stage) -> None:
    for ttl in (1, 2, 3):
        stage.bench("QSET", "q", "TTL", ttl)
    stage.file.close()
    text = stage.path.read_bytes()
    assert text.count(b'"q"') == 1
    stage.start()
    stage.file.close()
    assert stage.path.read_bytes() == text


def test_what_failed_to_be_written_does_not_come_back(stage: Stage, full_disk: list[bool]) -> None:
    stage.bench("QSET", "q", "TTL", 1)
    full_disk.append(True)
    stage.bench.error("QSET", "q", "TTL", 22_222)
    full_disk.clear()
    stage.bench("QSET", "p", "TTL", 3)
    assert b"22222" not in stage.path.read_bytes()
    stage.start()
    assert [one[1] for one in stage.bench("QGET")] == [b"p", b"q"]  # type: ignore[attr-defined]
    assert stage.bench("QGET", "q") == [b"name", b"q", b"ttl", 1]


def test_a_file_that_somebody_changed_meanwhile_is_replaced(stage: Stage) -> None:
    stage.bench("QSET", "q", "TTL", 1)
    stage.path.unlink()
    stage.bench("QSET", "p", "TTL", 2)
    stage.path.write_bytes(b"")
    stage.bench("QSET", "o", "TTL", 3)
    stage.start()
    assert [one[1] for one in stage.bench("QGET")] == [b"o", b"p", b"q"]  # type: ignore[attr-defined]


async def test_a_file_that_has_grown_is_replaced(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_file, "SMALL", 1_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.file.run)
        await wait_all_tasks_blocked()
        most = 0
        for ttl in range(1, 101):
            stage.bench("QSET", "q", "TTL", ttl)
            with trio.fail_after(HANG_SECONDS):
                while len(stage.path.read_bytes()) > 2_000:
                    await trio.sleep(0)
            most = max(most, len(stage.path.read_bytes()))
        assert most > 1_000
        nursery.cancel_scope.cancel()
    stage.start()
    assert stage.bench("QGET", "q") == [b"name", b"q", b"ttl", 100]


def test_what_is_appended_while_the_file_is_replaced_is_in_both(stage: Stage) -> None:
    stage.bench("QSET", "q", "TTL", 1)
    file = stage.file
    text, pieces = file._begin(whole=True)
    made = [next(pieces)]
    stage.bench("QSET", "q", "TTL", 2)
    text.data = b"".join(made + list(pieces))
    stage.bench("QSET", "p", "TTL", 3)
    assert file._write(text) is None  # as a thread would do it
    stage.bench("QSET", "o", "TTL", 4)
    told = stage.bench("QGET")
    stage.start()
    assert stage.bench("QGET") == told
    assert len(told) == 3  # type: ignore[arg-type]


async def test_while_a_large_file_is_made_clients_are_served(stage: Stage) -> None:
    stage.bench("QSET", "q", "TTL", 1)
    for number in range(10 * PIECE):
        stage.hear_policy(b"%d" % number)
    dump = stage.file._dump
    turns = 1
    seen: list[int] = []  # the turn in which each piece is made

    def watched() -> Iterator[bytes]:
        for piece in dump():
            seen.append(turns)
            yield piece

    stage.file._dump = watched
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.file.run)
        with trio.fail_after(HANG_SECONDS):
            while b'"7"' not in stage.path.read_bytes():
                turns += 1
                stage.bench("QSET", "q", "TTL", turns)
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert len(seen) > 10
    assert max(Counter(seen).values()) <= 2  # Trio may call two tasks in any order
    stage.start()
    assert stage.bench.node.policies.count == 1 + 10 * PIECE
    assert stage.bench("QGET", "q") == [b"name", b"q", b"ttl", turns]


async def test_a_file_that_only_holds_much_is_not_replaced(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_file, "SMALL", 1_000)
    stage.bench("QSET", "q", "TTL", 1)
    before = stage.path.read_bytes()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.file.run)
        for number in range(100):
            stage.bench("QSET", f"queue-{number}", "TTL", 1)
            await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert stage.path.read_bytes().startswith(before + CHANGES)


def set_schedule(stage: Stage) -> None:
    """CRON SET, in a cluster of nodes that all know extensions."""
    for id in (C_NODE, CAPABLE):
        stage.hear(id, 1)
    assert stage.bench("CRON", "SET", "s", "@every 10s", "q", "body") == b"OK"


def test_schedules_are_in_a_file_of_their_own(stage: Stage) -> None:
    set_schedule(stage)
    before = stage.bench("CRON", "GET", "s")
    assert not stage.path.exists()
    stage.start()  # as after kill -9
    assert stage.bench("CRON", "GET", "s") == before


def test_what_was_done_is_in_the_file(stage: Stage) -> None:
    set_schedule(stage)
    stage.bench.node.ticks.sharing.reach(b"s", 2_000_000_000_000)
    stage.schedules.close()
    stage.start()
    reply = stage.bench("CRON", "GET", "s")
    assert isinstance(reply, list)
    assert reply[reply.index(b"done-until") + 1] == 2_000_000_000_000


def test_what_was_done_meanwhile_is_appended(stage: Stage) -> None:
    set_schedule(stage)
    path = stage.path.with_suffix(".schedules")
    before = path.read_bytes()
    for time in (2_000_000_000_000, 2_000_000_010_000):
        stage.bench.node.ticks.sharing.reach(b"s", time)
        assert stage.schedules.save([]) is None
    assert path.read_bytes().startswith(before)
    stage.start()
    reply = stage.bench("CRON", "GET", "s")
    assert isinstance(reply, list)
    assert reply[reply.index(b"done-until") + 1] == 2_000_000_010_000
    stage.bench("CRON", "DEL", "s")
    stage.start()
    assert stage.bench("CRON", "LIST") == []


@pytest.mark.parametrize("kind", ["schedules", "bindings", "pauses"])
def test_a_damaged_file_of_another_kind_is_no_obstacle(stage: Stage, kind: str) -> None:
    stage.path.with_suffix(f".{kind}").write_bytes(b"schedule 1\nclock 7\n")
    stage.start()
    assert [warning["line"][:7] for warning in stage.warnings] == ["line 1:"]
    assert stage.bench.info("queues")["shared_lines_skipped"] == "1"


def test_bindings_are_in_a_file_of_their_own(stage: Stage) -> None:
    for id in (C_NODE, CAPABLE):
        stage.hear(id, 1)
    assert stage.bench("BIND", "mail.*", "q") == b"OK"
    assert not stage.path.exists()
    stage.start()  # as after kill -9
    assert stage.bench("BINDINGS") == [[b"mail.*", b"q"]]
    stage.bench("UNBIND", "mail.*", "q")
    stage.start()
    assert stage.bench("BINDINGS") == []
    assert stage.bench.node.topics.bindings.clock == 2


def test_pauses_on_all_nodes_are_in_a_file_of_their_own(stage: Stage) -> None:
    stage.bench("PAUSE", "q", "in", "bcast")
    stage.bench("PAUSE", "p", "all", "bcast")
    stage.bench("PAUSE", "local", "all")
    stage.start()  # as after kill -9, and without an append-only file
    found = [stage.bench("PAUSE", queue, "state") for queue in ("q", "p", "local")]
    assert found == [b"in", b"all", b"none"]
    stage.bench("PAUSE", "q", "none", "bcast")
    stage.bench("PAUSE", "p", "out")
    stage.pauses.close()
    stage.start()
    assert [stage.bench("PAUSE", queue, "state") for queue in ("q", "p")] == [b"none", b"out"]
    assert stage.bench.node.queue_pauses.known.clock == 3
