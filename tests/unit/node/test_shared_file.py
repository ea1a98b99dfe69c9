"""The files next to nodes.conf: policies and extensions, and schedules."""

import os
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
from disque_trio.node.core.policies import Policy
from disque_trio.node.core.versions import Entry
from disque_trio.node.shared_file import (
    SharedFileError,
    bindings_file,
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
    replace = shared_file.replace_file

    def failing(path: str, data: bytes) -> None:
        if full:
            raise OSError(28, os.strerror(28))
        replace(path, data)

    monkeypatch.setattr(shared_file, "replace_file", failing)
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


def test_a_damaged_file_is_no_start_and_stays_as_it_is(stage: Stage) -> None:
    stage.path.write_bytes(b"policy 1\n")
    with pytest.raises(SharedFileError, match=r"nodes\.conf\.policies: line 1: .* remove it"):
        stage.start()
    assert stage.path.read_bytes() == b"policy 1\n"
    stage.path.unlink()
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
        while not stage.warnings:
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


def test_a_damaged_file_of_schedules_is_no_start(stage: Stage) -> None:
    path = stage.path.with_suffix(".schedules")
    path.write_bytes(b"schedule 1\n")
    with pytest.raises(SharedFileError, match=r"nodes\.conf\.schedules: line 1: .* remove it"):
        stage.start()


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
