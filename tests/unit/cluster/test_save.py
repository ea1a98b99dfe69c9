"""nodes.conf is written in a thread; an exiting process does not wait for threads."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from disque_trio.cluster.cluster import Cluster, ClusterError
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
