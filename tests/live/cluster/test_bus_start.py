"""What a real node announces about itself, where its bus listens, and its nodes.conf."""

import shutil
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.protocol.bus import MEET, PING, PONG, packet_sender, packet_type, sender_address
from tests.support.addresses import other_address
from tests.support.certificates import make_certificates
from tests.support.fake_peer import HOST, FakePeer, bus_wire
from tests.support.harness import (
    BUS_OFFSET,
    HANG_SECONDS,
    LiveNode,
    NodeFactory,
    free_port,
    wait_for_ping,
    wait_until,
)
from tests.support.live_helpers import run_server, spawn


@pytest.fixture
def peer(node: LiveNode) -> Iterator[FakePeer]:
    """The other member of the cluster of ``node``."""
    with FakePeer(node) as it:
        yield it.join()


# ---- addresses and the start ---------------------------------------------------------------


def test_other_nodes_get_the_announced_address(disque_server: NodeFactory) -> None:
    node = disque_server("--cluster-announce-ip", "192.0.2.9", "--cluster-announce-port", "12345")
    with FakePeer(node) as peer:
        peer.to_node.send(peer.packets.gossip(PING, []))
        assert sender_address(peer.to_node.read()) == ("192.0.2.9", 12345)
    assert node.cluster_nodes()[0][1] == "192.0.2.9:12345"
    node.ask("CONFIG", "SET", "cluster-announce-ip", "", "cluster-announce-port", 0)
    with FakePeer(node) as peer:
        peer.to_node.send(peer.packets.gossip(PING, []))
        assert sender_address(peer.to_node.read()) == ("", node.port)


def test_a_node_connects_from_the_address_it_listens_on(tmp_path: Path) -> None:
    port = free_port()
    node = spawn(["--port", str(port), "--bind", "127.0.0.2"], port, tmp_path)
    node.host = "127.0.0.2"
    try:
        assert wait_for_ping(node)
        with socket.create_server((HOST, free_port() + BUS_OFFSET)) as listener:
            listener.settimeout(HANG_SECONDS)
            other = listener.getsockname()[1] - BUS_OFFSET
            assert node.ask("CLUSTER", "MEET", HOST, other) == b"OK"
            sock, address = listener.accept()
            sock.close()
        assert address[0] == "127.0.0.2"
    finally:
        node.close()


def test_the_start_fails_when_the_bus_cannot_listen(tmp_path: Path) -> None:
    port = free_port()
    with socket.socket() as other:
        other.bind((HOST, port + BUS_OFFSET))
        other.listen()
        result = run_server("--port", str(port), "--bind", HOST, cwd=tmp_path)
    assert result.returncode == 1
    assert str(port + BUS_OFFSET) in result.stderr
    assert "Traceback" not in result.stderr


def test_a_port_too_high_for_a_bus_port_is_refused(tmp_path: Path) -> None:
    result = run_server("--port", "55536", cwd=tmp_path)
    assert result.returncode == 1
    assert "55535" in result.stderr


def test_without_a_port_there_is_no_bus(tmp_path: Path) -> None:
    node = spawn(["--port", "0", "--unixsocket", "only.sock"], 0, tmp_path)
    try:
        wait_until(lambda: (tmp_path / "only.sock").exists())
        sockets = Path(f"/proc/{node.process.pid}/net/tcp").read_text()
        inodes = {f"socket:[{line.split()[9]}]" for line in sockets.splitlines()[1:]}
        descriptors = Path(f"/proc/{node.process.pid}/fd")
        assert not inodes & {str(link.readlink()) for link in descriptors.iterdir()}
    finally:
        node.close()


def test_protected_mode_keeps_other_machines_off_the_bus(tmp_path: Path) -> None:
    address = other_address()
    port = free_port()
    node = spawn(["--port", str(port)], port, tmp_path)
    try:
        assert wait_for_ping(node)
        inside, outside = bus_wire(node), bus_wire(node, address)
        with FakePeer(node) as peer:
            meet = peer.packets.gossip(MEET, [])
            outside.sock.sendall(meet)
            assert outside.closed()
            inside.send(meet)
            assert packet_type(inside.read()) == PONG
        assert node.ask("CONFIG", "SET", "protected-mode", "no") == b"OK"
        outside.close()
        outside = bus_wire(node, address)
        outside.send(meet)
        assert packet_type(outside.read()) == PONG
        inside.close()
        outside.close()
    finally:
        node.close()


# ---- nodes.conf ----------------------------------------------------------------------------


def my_id(node: LiveNode) -> bytes:
    id = node.ask("CLUSTER", "MYID")
    assert isinstance(id, bytes)
    return id


def test_a_node_keeps_its_id_and_its_members(disque_server: NodeFactory, peer: FakePeer) -> None:
    node = peer.node
    id = my_id(node)
    file = node.directory / "nodes.conf"
    wait_until(lambda: peer.id.decode() in file.read_text())
    node.kill()
    again = disque_server(cwd=node.directory)
    assert my_id(again) == id
    assert peer.id.decode() in {words[0] for words in again.cluster_nodes()}
    # It contacts its members by itself.
    wire = peer.accept()
    assert packet_sender(wire.read()) == id


@pytest.mark.parametrize("how", [["RESTART"], ["DEBUG", "RESTART"]], ids=["restart", "debug"])
def test_a_process_that_replaces_itself_is_the_same_member(
    node: LiveNode, peer: FakePeer, how: list[str]
) -> None:
    id = my_id(node)
    run_id = node.info("server")["run_id"]
    wire = node.wire()
    wire.send(*how)
    assert wire.closed()
    assert packet_sender(peer.accept().read()) == id

    def replaced() -> bool:
        try:
            return node.info("server")["run_id"] != run_id
        except (EOFError, OSError):
            return False

    wait_until(replaced)
    assert my_id(node) == id
    assert peer.id.decode() in {words[0] for words in node.cluster_nodes()}
    # The file is locked again.
    port = free_port()
    result = run_server("--port", str(port), "--bind", HOST, cwd=node.directory)
    assert result.returncode == 1
    assert "nodes.conf" in result.stderr


def test_a_stopping_node_saves_the_node_it_met_last(node: LiveNode, peer: FakePeer) -> None:
    assert node.stop() == 0
    text = (node.directory / "nodes.conf").read_text()
    assert peer.id.decode() in text
    assert "myself" in text


def test_two_nodes_cannot_share_a_nodes_conf(node: LiveNode) -> None:
    result = run_server("--port", str(free_port()), "--bind", HOST, cwd=node.directory)
    assert result.returncode == 1
    assert "nodes.conf" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_damaged_nodes_conf_prevents_the_start(tmp_path: Path) -> None:
    (tmp_path / "nodes.conf").write_text("this is\nno list of nodes\n")
    result = run_server("--port", str(free_port()), "--bind", HOST, cwd=tmp_path)
    assert result.returncode == 1
    assert f"{tmp_path}/nodes.conf: line 1" in result.stderr
    assert "Traceback" not in result.stderr
    assert (tmp_path / "nodes.conf").read_text() == "this is\nno list of nodes\n"


def test_nodes_conf_follows_the_working_directory(node: LiveNode, peer: FakePeer) -> None:
    place, taken = node.directory / "place", node.directory / "taken"
    place.mkdir()
    taken.mkdir()
    (taken / "nodes.conf").write_text("somebody's")
    wire = node.wire()
    assert "nodes.conf" in wire.error("CONFIG", "SET", "dir", str(taken))
    assert wire("CONFIG", "SET", "dir", str(place)) == b"OK"
    assert peer.id.decode() in (place / "nodes.conf").read_text()
    assert wire("CONFIG", "SET", "dir", str(place)) == b"OK"


def test_a_node_can_go_back_to_where_it_came_from(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    here, there = node.directory, node.directory / "there"
    there.mkdir()
    wire = node.wire()
    for place in (there, here, there):
        assert wire("CONFIG", "SET", "dir", str(place)) == b"OK"
        assert my_id(node).decode() in (place / "nodes.conf").read_text()
    # A node on a copy of the file is another process, whatever its ID.
    twin = disque_server(cwd=here)
    assert my_id(twin) == my_id(node)
    assert "in use" in wire.error("CONFIG", "SET", "dir", str(here))
    assert twin.stop() == 0
    assert wire("CONFIG", "SET", "dir", str(here)) == b"OK"


def test_invalid_certificates_prevent_the_start(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    options = ["--tls-cluster", "yes", "--tls-cert-file", "cert.pem", "--tls-key-file", "cert.pem"]
    port = str(free_port())
    for more, named in (([], "tls-ca-cert-file"), (["--tls-ca-cert-file", "x"], "cert.pem")):
        result = run_server("--port", port, "--bind", HOST, *options, *more, cwd=tmp_path)
        assert result.returncode == 1
        assert named in result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_a_reload_takes_new_certificates(disque_server: NodeFactory, tmp_path: Path) -> None:
    for name in ("old", "new"):
        make_certificates(tmp_path, name)
    names = {"cert": ".pem", "key": ".key", "ca-cert": "-ca.pem"}

    def install(name: str) -> bytes:
        for kind, ending in names.items():
            shutil.copy(tmp_path / f"{name}{ending}", tmp_path / f"{kind}-in-use")
        return ssl.PEM_cert_to_DER_cert((tmp_path / f"{name}.pem").read_text())

    def shown() -> bytes | None:
        """Return the certificate that the node presents."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with (
            socket.create_connection((HOST, node.port + BUS_OFFSET), 20) as sock,
            context.wrap_socket(sock) as link,
        ):
            return link.getpeercert(binary_form=True)

    old = install("old")
    (tmp_path / "disque.conf").write_text(
        "tls-cluster yes\n" + "".join(f"tls-{kind}-file {kind}-in-use\n" for kind in names)
    )
    node = disque_server("disque.conf")
    assert shown() == old
    new = install("new")
    assert shown() == old
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: shown() == new)
