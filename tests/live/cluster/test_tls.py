"""A cluster with an encrypted bus, and peers that cannot get in."""

import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.protocol.bus import MEET, PacketWriter
from tests.support.bus_proxy import HOST
from tests.support.certificates import make_certificates
from tests.support.harness import BUS_OFFSET, HANG_SECONDS, wait_until
from tests.support.live_cluster import LiveCluster, Member, job_goes_round, live_cluster
from tests.support.live_helpers import add_job

if shutil.which("openssl") is None:
    pytest.skip("there is no openssl to make certificates with", allow_module_level=True)


def tls_options(directory: Path, own: str = "ours", trusted: str = "ours") -> list[str]:
    """Return options with a certificate of the CA ``own``, and trust in the CA ``trusted``."""
    return [
        "--tls-cluster", "yes",
        "--tls-cert-file", str(directory / f"{own}.pem"),
        "--tls-key-file", str(directory / f"{own}.key"),
        "--tls-ca-cert-file", str(directory / f"{trusted}-ca.pem"),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory, "ours")
    make_certificates(directory, "foreign")
    return directory


@pytest.fixture(scope="module")
def running(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    directory = tmp_path_factory.mktemp("tls")
    with live_cluster(directory, 3, *tls_options(certificates)) as found:
        yield found


@pytest.fixture
def cluster(running: LiveCluster) -> Iterator[LiveCluster]:
    """Three nodes without jobs."""
    yield running
    running.end_test()


@pytest.fixture
def stranger(
    tmp_path: Path, certificates: Path, request: pytest.FixtureRequest
) -> Iterator[Member]:
    options = tls_options(certificates, own="foreign") if request.param == "foreign" else []
    with live_cluster(tmp_path, 1, *options) as other:
        yield other[0]


@pytest.mark.pure
def test_jobs_go_through_an_encrypted_cluster(cluster: LiveCluster) -> None:
    job_goes_round(cluster)


def test_many_jobs_at_once_arrive_over_tls(cluster: LiveCluster) -> None:
    wire = cluster[1].wire()
    for n in range(2000):
        wire.send("ADDJOB", "q", n, 0, "REPLICATE", 3)
    ids = [wire.read() for _ in range(2000)]
    assert len(set(ids)) == 2000
    assert all(isinstance(id, bytes) for id in ids)
    assert cluster[0].ask("FASTACK", *ids) == 2000
    cluster.wait_empty()


@pytest.mark.parametrize("stranger", ["plain", "foreign"], indirect=True)
def test_a_node_without_a_certificate_of_the_authority_cannot_join(
    cluster: LiveCluster, stranger: Member
) -> None:
    ids = cluster.ids
    id = stranger.id
    stranger.meet(cluster[0])
    cluster[1].meet(stranger)
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        for node in cluster:
            assert id not in node.lines()
            assert node.cluster_info()["cluster_reachable_nodes"] == "2"
        assert not set(ids) & set(stranger.lines())
        time.sleep(0.1)
    add_job(cluster[0].wire(), "q", "body", "REPLICATE", 3)
    assert stranger.registered() == 0


def test_packets_without_tls_are_ignored(cluster: LiveCluster) -> None:
    packets = PacketWriter(b"a" * 40, cluster[0].port)
    with socket.create_connection((HOST, cluster[0].port + BUS_OFFSET), HANG_SECONDS) as sock:
        sock.settimeout(HANG_SECONDS)
        sock.sendall(packets.packet(MEET, b""))
        while data := receive(sock):
            assert not data.startswith(b"DbuZ")
    assert b"a" * 40 not in cluster[0].lines()


def test_tls_without_a_client_certificate_is_not_enough(
    cluster: LiveCluster, certificates: Path
) -> None:
    context = ssl.create_default_context(cafile=str(certificates / "ours-ca.pem"))
    context.check_hostname = False
    packets = PacketWriter(b"b" * 40, cluster[0].port)
    with socket.create_connection((HOST, cluster[0].port + BUS_OFFSET), HANG_SECONDS) as sock:
        sock.settimeout(HANG_SECONDS)
        # With TLS 1.3 the refusal comes after the handshake on this side.
        try:
            with context.wrap_socket(sock) as link:
                link.sendall(packets.packet(MEET, b""))
                answer = link.recv(1000)
        except (ssl.SSLError, ConnectionError):
            answer = b""
        assert answer == b""
    assert b"b" * 40 not in cluster[0].lines()


def test_a_member_comes_back_over_tls(cluster: LiveCluster) -> None:
    id = cluster[2].id
    cluster[2].kill()
    cluster.wait_failing([id], cluster.nodes[:2])
    cluster[2].start()
    cluster.wait_joined()
    wait_until(lambda: cluster[2].id == id)


def receive(sock: socket.socket) -> bytes:
    try:
        return sock.recv(1000)
    except ConnectionError:
        return b""
