"""nodes.conf is written in a thread; an exiting process does not wait for threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from disque_trio.cluster.cluster import Cluster, ClusterError
from disque_trio.cluster.keyring import BY_MEET
from disque_trio.cluster.keys_file import KEYRING, load_keyring
from disque_trio.cluster.nodes_conf import parse_nodes
from disque_trio.config import Config
from disque_trio.process.clock import Clock
from disque_trio.protocol.bus import NODE_LEAVING
from disque_trio.respserver.io.poller import Poller
from disque_trio.respserver.io.stats import Stats


async def test_what_a_thread_is_about_to_write_is_written_at_once_when_the_process_ends(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path = tmp_path / "nodes.conf"
    config = Config({"cluster-config-file": str(path)})
    poller = Poller()
    cluster = Cluster(config, Clock(), Stats(), SimpleNamespace(), poller)  # type: ignore[arg-type]
    engine: Any = SimpleNamespace(halted=True)
    limiter = trio.to_thread.current_default_thread_limiter()
    limiter.total_tokens, tokens = 1, limiter.total_tokens
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.run, engine)
            async with limiter:  # no thread is free
                cluster.membership.set_leaving(True)
                cluster.changed()
                await wait_all_tasks_blocked()
                assert not cluster.membership.config_changed  # the text is being written
                cluster.save_changes()
                assert parse_nodes(path.read_text()).myself.flags & NODE_LEAVING
            nursery.cancel_scope.cancel()
    finally:
        limiter.total_tokens = tokens
        cluster.close()
        poller.close()


async def test_a_node_does_not_start_before_its_id_is_on_disk(tmp_path: Path) -> None:
    config = Config({"cluster-config-file": str(tmp_path / "nodes.conf")})
    (tmp_path / "nodes.conf.tmp").mkdir()  # in the way
    poller = Poller()
    with pytest.raises(ClusterError):
        Cluster(config, Clock(), Stats(), SimpleNamespace(), poller)  # type: ignore[arg-type]
    poller.close()


@pytest.mark.parametrize(("identity", "warnings"), [("no", 1), ("yes", 0)])
def test_encryption_without_identities_is_warned_of(
    tmp_path: Path, identity: str, warnings: int
) -> None:
    path = str(tmp_path / "nodes.conf")
    settings = {"cluster-encrypt": True, "cluster-identity": identity}
    told: list[str] = []
    log: Any = SimpleNamespace(notice=_nothing, warning=told.append, debug=_nothing)
    poller = Poller()
    config = Config({"cluster-config-file": path, **settings})
    Cluster(config, Clock(), Stats(), log, poller).close()
    poller.close()
    assert len(told) == warnings


@contextmanager
def with_identity(directory: Path) -> Iterator[Cluster]:
    path = str(directory / "nodes.conf")
    config = Config({"cluster-config-file": path, "cluster-identity": "yes"})
    log: Any = SimpleNamespace(notice=_nothing, warning=_nothing, debug=_nothing)
    poller = Poller()
    cluster = Cluster(config, Clock(), Stats(), log, poller)
    try:
        yield cluster
    finally:
        cluster.close()
        poller.close()


def _nothing(text: str, **fields: object) -> None:
    pass


def pin(cluster: Cluster) -> None:
    trust = cluster.membership.trust
    assert trust is not None
    trust.keyring.pin(b"b" * 40, b"k" * 32, BY_MEET)
    trust.stored()


@pytest.mark.parametrize("reset", [False, True])
def test_pins_that_are_all_forgotten_do_not_come_back(tmp_path: Path, reset: bool) -> None:
    conf = str(tmp_path / "nodes.conf")
    with with_identity(tmp_path) as cluster:
        pin(cluster)
        cluster.save_changes()
        assert load_keyring(conf).pins
        if reset:
            cluster.membership.reset(b"c" * 40)
        else:
            assert cluster.membership.forget(b"b" * 40)
    assert not load_keyring(conf).pins


def test_a_member_is_on_disk_only_with_its_key(tmp_path: Path) -> None:
    with with_identity(tmp_path) as cluster:
        pin(cluster)
        cluster.membership.set_leaving(True)
        blocker = tmp_path / f"nodes.conf{KEYRING}"
        blocker.mkdir()  # in the way
        cluster.save_changes()
        text = (tmp_path / "nodes.conf").read_text()
        assert not parse_nodes(text).myself.flags & NODE_LEAVING
        blocker.rmdir()
    assert parse_nodes((tmp_path / "nodes.conf").read_text()).myself.flags & NODE_LEAVING
    assert load_keyring(str(tmp_path / "nodes.conf")).pins
