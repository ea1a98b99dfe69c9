"""Where a node listens for TLS, and which ports it announces."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from tests.support.harness import (
    HANG_SECONDS,
    LiveNode,
    NodeFactory,
    free_port,
    free_ports,
    start_process,
    wait_until,
)
from tests.support.several import COUNT, Start
from tests.support.tls import HOST, TlsWire, all_certificates, client_context, tls_options


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return all_certificates(tmp_path_factory.mktemp("certificates"))


class OnlyTls(LiveNode):
    """A node with ``port 0``; its ``port`` is the TLS port."""

    def __init__(self, directory: Path, certificates: Path, *options: str) -> None:
        port = free_port()
        directory.mkdir()
        own = ["--port", "0", "--bind", HOST, *tls_options(certificates, port)]
        started = start_process(directory, port, *own, *options)
        super().__init__(port, started.process, started.log)
        self._context = client_context(certificates)
        wait_until(self._serves)

    def _serves(self) -> bool:
        if self.process.poll() is not None:
            pytest.fail(self.log.read_text())
        try:
            return self.ask("PING") == b"PONG"
        except OSError:
            return False

    def wire(self) -> TlsWire:
        wire = TlsWire(self.port, self._context)
        self._wires.append(wire)
        return wire


@pytest.fixture
def only_tls(tmp_path: Path, certificates: Path) -> Iterator[list[OnlyTls]]:
    """Two nodes that only speak TLS, with clients and with each other."""
    nodes: list[OnlyTls] = []
    try:
        for n in range(2):
            node = OnlyTls(tmp_path / str(n), certificates, "--tls-cluster", "yes")
            nodes.append(node)
        yield nodes
    finally:
        for node in nodes:
            node.close()


def ports_of(reply: object) -> list[int]:
    """Return the ports listed by HELLO, sorted."""
    assert isinstance(reply, list)
    return sorted(int(node[2]) for node in reply[2:])


def test_nodes_without_another_port_are_known_by_that_for_tls(only_tls: list[OnlyTls]) -> None:
    first, second = only_tls
    assert first.info("server")["tcp_port"] == str(first.port)
    assert first.ask("CLUSTER", "MEET", HOST, second.port) == b"OK"
    wait_until(lambda: first.sees(2) and second.sees(2))
    for node in only_tls:
        assert ports_of(node.ask("HELLO")) == sorted([first.port, second.port])
    assert isinstance(first.ask("ADDJOB", "q", "body", 0, "REPLICATE", 2), bytes)


def test_nodes_with_both_ports_tell_each_client_its_own(
    disque_server: NodeFactory, certificates: Path
) -> None:
    tls_ports = [free_port(), free_port()]
    first, second = [disque_server(*tls_options(certificates, port)) for port in tls_ports]
    assert first.ask("CLUSTER", "MEET", HOST, second.port) == b"OK"
    wait_until(lambda: first.sees(2) and second.sees(2))
    with closing(TlsWire(tls_ports[0], client_context(certificates))) as wire:
        wait_until(lambda: ports_of(wire("HELLO")) == sorted(tls_ports))
    assert ports_of(first.ask("HELLO")) == sorted([first.port, second.port])


def test_a_restart_keeps_the_port_for_tls(disque_server: NodeFactory, certificates: Path) -> None:
    port = free_port()
    node = disque_server(*tls_options(certificates, port))
    before = node.info("server")["run_id"]
    with closing(TlsWire(port, client_context(certificates))) as wire:
        id = wire("ADDJOB", "q", "body", 0)
        wire.send("RESTART")
        assert wire.closed()
    wait_until(lambda: node.info("server")["run_id"] != before)
    with closing(TlsWire(port, client_context(certificates))) as wire:
        wait_until(lambda: wire("PING") == b"PONG")
        assert wire("GETJOB", "FROM", "q") == [[b"q", id, b"body"]]


def test_processes_share_the_port_and_each_has_one_of_its_own(
    several: Start, certificates: Path
) -> None:
    port = free_ports(COUNT + 1)[0]
    server = several(*tls_options(certificates, port), "--tls-cluster", "yes")
    context = client_context(certificates)
    ids = [node.ask("CLUSTER", "MYID") for node in server.nodes]
    for id, own in zip(ids, (port + COUNT, port + 1), strict=True):
        with closing(TlsWire(own, context)) as wire:
            assert wire("CLUSTER", "MYID") == id
            wait_until(lambda wire=wire: ports_of(wire("HELLO")) == [port + 1, port + COUNT])
    assert ports_of(server.nodes[0].ask("HELLO")) == [node.port for node in server.nodes]
    found: set[object] = set()

    def come_to_all() -> bool:
        with closing(TlsWire(port, context)) as wire:
            found.add(wire("CLUSTER", "MYID"))
        return found == set(ids)

    wait_until(come_to_all)
    pids = [server.pid(number) for number in range(COUNT)]
    run_ids = [node.info("server")["run_id"] for node in server.nodes]
    with closing(TlsWire(port, context)) as wire:
        wire.send("RESTART")
        assert wire.closed()
    wait_until(server.serves)
    found.clear()
    wait_until(come_to_all)
    assert [server.pid(number) for number in range(COUNT)] == pids
    assert not {node.info("server")["run_id"] for node in server.nodes} & set(run_ids)


def test_redis_cli_and_redis_py_connect(disque_server: NodeFactory, certificates: Path) -> None:
    port = free_port()
    disque_server(*tls_options(certificates, port))
    files = {
        "ssl_ca_certs": str(certificates / "ours-ca.pem"),
        "ssl_certfile": str(certificates / "client.pem"),
        "ssl_keyfile": str(certificates / "client.key"),
    }
    with redis.Redis.from_url(f"rediss://{HOST}:{port}", **files) as client:
        id = client.execute_command("ADDJOB", "q", "body", 0)
        assert client.execute_command("SHOW", id)
    if shutil.which("redis-cli") is None:
        pytest.skip("there is no redis-cli")
    options = ["--cacert", "ours-ca.pem", "--cert", "client.pem", "--key", "client.key"]
    done = subprocess.run(
        ["redis-cli", "-h", HOST, "-p", str(port), "--tls", *options, "GETJOB", "FROM", "q"],
        cwd=certificates,
        capture_output=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    assert done.stdout.splitlines()[1:] == [id, b"body"]
