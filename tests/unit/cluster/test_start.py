"""A starting node contacts the nodes it knows within its first tick."""

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from disque_trio.cluster.cluster import Cluster
from disque_trio.cluster.nodes_conf import NodeLine, format_nodes
from disque_trio.config import Config, load_settings
from disque_trio.node.server import Server
from disque_trio.process.clock import Clock
from disque_trio.process.logs import Logging
from disque_trio.protocol.bus import (
    NODE_FAIL,
    NODE_MYSELF,
    PING,
    packet_sender,
    packet_type,
)
from disque_trio.protocol.packet_parser import PacketParser
from disque_trio.respserver.io.poller import Poller
from disque_trio.respserver.io.stats import Stats
from tests.support.harness import BUS_OFFSET, free_port

MYSELF, OTHER = b"a" * 40, b"b" * 40


def first_packet(listener: socket.socket) -> bytes:
    with listener.accept()[0] as sock:
        sock.settimeout(20)
        parser = PacketParser()
        while True:
            packets = parser.feed(sock.recv(1 << 16))
            if packets:
                return packets[0]


async def test_a_node_pings_those_it_knows_before_any_time_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    assert mock_clock.rate == 0
    monkeypatch.chdir(tmp_path)
    port, other = free_port(), free_port()
    lines = [
        NodeLine(MYSELF, "127.0.0.1", port, NODE_MYSELF),
        NodeLine(OTHER, "127.0.0.1", other, NODE_FAIL),
    ]
    Path("nodes.conf").write_text(format_nodes(lines))
    logging = Logging(path="log")
    server = Server(
        load_settings(Config, None, [("port", str(port)), ("bind", "127.0.0.1")]), logging
    )
    with socket.create_server(("127.0.0.1", other + BUS_OFFSET)) as listener:
        listener.settimeout(20)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.daemon.run)
            packet = await trio.to_thread.run_sync(first_packet, listener)
            server.daemon.stop("the test is over")
    logging.close()
    assert (packet_type(packet), packet_sender(packet)) == (PING, MYSELF)


@pytest.mark.parametrize("setting", ["yes", "optional"])
def test_nodes_without_an_identity_are_refused_only_where_it_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    pytest.importorskip("cryptography")  # before there is a log to close
    monkeypatch.chdir(tmp_path)
    logging = Logging(path=str(tmp_path / "log"))
    server = Server(load_settings(Config, None, [("cluster-identity", setting)]), logging)
    identities = server.cluster.links.identities
    assert identities is not None
    assert identities.trust.required == (setting == "yes")
    server.engine.close_all()
    server.cluster.close()
    logging.close()


async def test_a_process_contacts_the_others_of_its_server_before_any_time_passes(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    assert mock_clock.rate == 0
    config = Config({"cluster-config-file": str(tmp_path / "nodes.conf")})
    engine: Any = SimpleNamespace(halted=False, after_node=lambda: None)
    poller = Poller()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = ("127.0.0.1", listener.getsockname()[1] - BUS_OFFSET)
        log: Any = SimpleNamespace()
        cluster = Cluster(config, Clock(), Stats(), log, poller, [[place, place]])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.run, engine)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        listener.settimeout(20)
        listener.accept()[0].close()
    cluster.links.close_all()
    cluster.close()
    poller.close()
