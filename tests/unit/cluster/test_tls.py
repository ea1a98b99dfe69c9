"""TLS on the cluster bus: which peers get in, and that bytes get through."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.cluster.bus import PATIENCE
from disque_trio.cluster.tls import bus_tls
from disque_trio.config import Config
from disque_trio.process.tls import TlsError
from tests.support.bus_bench import JOB_PACKET, PACKETS, PING_PACKET, Bench, is_closed, receive
from tests.support.certificates import make_certificates

if shutil.which("openssl") is None:
    pytest.skip("there is no openssl to make certificates with", allow_module_level=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory, "ours")
    make_certificates(directory, "foreign")
    openssl = ["openssl", "ec", "-in", "ours.key", "-aes128", "-passout", "pass:x"]
    subprocess.run([*openssl, "-out", "locked.key"], cwd=directory, check=True, capture_output=True)
    return directory


def settings(certificates: Path, own: str = "ours", key: str = "ours", ca: str = "ours") -> Config:
    return Config(
        {
            "tls-cluster": True,
            "tls-cert-file": str(certificates / f"{own}.pem"),
            "tls-key-file": str(certificates / f"{key}.key"),
            "tls-ca-cert-file": str(certificates / f"{ca}-ca.pem"),
        }
    )


@pytest.fixture
def bench(tmp_path: Path, certificates: Path) -> Iterator[Bench]:
    it = Bench(tmp_path, settings(certificates))
    it.links.tls = bus_tls(it.config)
    yield it
    it.close()


def test_large_packets_get_through_in_both_directions(bench: Bench) -> None:
    bench.connect_to_itself()
    bench.turns_until(lambda: "opened" in bench.heard())
    out = bench.notes.told[0][1]
    out.send(PING_PACKET)
    bench.turns_until(lambda: "accepted" in bench.heard())
    back = bench.notes.told[1][1]
    large = [PACKETS.jobs(4, [bytes((n,)) * (3 << 20)]) for n in range(6)]
    for n, packet in enumerate(large):
        (out, back)[n % 2].send(packet)
        out.send(JOB_PACKET)
    bench.turns_until(lambda: len(bench.notes.packets) == 13)
    assert sorted(bench.notes.packets) == sorted([PING_PACKET, *large, *[JOB_PACKET] * 6])
    assert not bench.links.behind
    assert bench.heard() == ["opened", "accepted"]


@pytest.mark.parametrize("own", ["foreign", None])
def test_a_node_without_a_certificate_of_the_authority_is_not_heard(
    bench: Bench, certificates: Path, own: str | None
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(certificates / "ours-ca.pem")
    if own:
        context.load_cert_chain(certificates / f"{own}.pem", certificates / f"{own}.key")
    other = bench.admit()
    other.setblocking(False)
    with context.wrap_socket(other, do_handshake_on_connect=False) as link:
        _shake(bench, link)
        try:
            # On this side the TLS 1.3 handshake completes before the peer checks its certificate.
            link.send(PING_PACKET)
        except OSError:
            pass
        bench.turns_until(lambda: bench.links.count == 0)
    bench.turn(0)
    assert bench.heard() == []
    assert bench.notes.packets == []


def _shake(bench: Bench, link: ssl.SSLSocket) -> None:
    for _ in range(100):
        try:
            link.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            bench.turn()
        except OSError:
            return
        else:
            return


def test_a_node_without_tls_is_not_heard(bench: Bench) -> None:
    other = bench.admit()
    other.sendall(PING_PACKET)
    bench.turns_until(lambda: bench.links.count == 0)
    assert is_closed(other)
    assert bench.notes.packets == []


def test_a_server_without_a_certificate_of_the_authority_is_not_talked_to(
    bench: Bench, certificates: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "foreign.pem", certificates / "foreign.key")
    bench.connect()
    other = bench.accept()
    other.setblocking(False)
    with context.wrap_socket(other, True, do_handshake_on_connect=False) as link:
        _shake(bench, link)
        bench.turns_until(lambda: "lost" in bench.heard())
    assert bench.heard() == ["lost"]


def test_a_handshake_that_does_not_end_is_dropped_in_time(bench: Bench) -> None:
    silent = bench.admit()
    outgoing = bench.connect()
    mute = bench.accept()
    bench.turns_until(lambda: outgoing.connected)
    now = bench.clock.now()
    bench.links.cron(now)
    assert bench.links.count == 2
    bench.links.cron(now + PATIENCE + 1000)
    assert bench.links.count == 0
    assert is_closed(silent)
    assert is_closed(mute)
    bench.turn(0)
    assert bench.notes.told == [("lost", outgoing)]


def test_what_came_with_the_end_of_the_connection_is_heard(
    bench: Bench, certificates: Path
) -> None:
    context = bench.links.tls
    assert context is not None
    other = bench.admit()
    other.setblocking(False)
    with context.client.wrap_socket(other, do_handshake_on_connect=False) as link:
        _shake(bench, link)
        assert link.send(PING_PACKET + JOB_PACKET) == len(PING_PACKET + JOB_PACKET)
    bench.turns_until(lambda: "lost" in bench.heard())
    assert bench.notes.packets == [PING_PACKET, JOB_PACKET]


def test_a_link_talks_to_plain_openssl(bench: Bench) -> None:
    assert bench.links.tls is not None
    link = bench.connect()
    other = bench.accept()
    other.setblocking(False)
    with bench.links.tls.server.wrap_socket(other, True, do_handshake_on_connect=False) as peer:
        _shake(bench, peer)
        bench.turns_until(lambda: link.up)
        link.send(JOB_PACKET)
        bench.turn()
        peer.setblocking(True)
        peer.settimeout(5)
        assert receive(peer, len(JOB_PACKET)) == JOB_PACKET


def test_without_tls_cluster_no_certificate_is_read() -> None:
    assert bus_tls(Config({"tls-cert-file": "/no/such/file"})) is None


@pytest.mark.parametrize(
    ("own", "key", "ca", "named"),
    [
        ("missing", "ours", "ours", "tls-cert-file"),
        ("ours", "missing", "ours", "tls-key-file"),
        ("ours", "ours", "missing", "tls-ca-cert-file"),
        ("ours", "foreign", "ours", "tls-key-file"),
        ("ours", "locked", "ours", "tls-key-file"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_named(
    certificates: Path, own: str, key: str, ca: str, named: str
) -> None:
    with pytest.raises(TlsError, match=named):
        bus_tls(settings(certificates, own, key, ca))


@pytest.mark.parametrize("name", ["tls-cert-file", "tls-key-file", "tls-ca-cert-file"])
def test_a_certificate_that_is_not_named_is_asked_for(certificates: Path, name: str) -> None:
    config = settings(certificates)
    config = Config(config.values() | {name: ""})
    with pytest.raises(TlsError, match=name):
        bus_tls(config)


def test_new_certificates_are_for_new_connections(bench: Bench, certificates: Path) -> None:
    link = bench.connect()
    other = bench.accept()
    other.setblocking(False)
    assert bench.links.tls is not None
    with bench.links.tls.server.wrap_socket(other, True, do_handshake_on_connect=False) as peer:
        _shake(bench, peer)
        bench.turns_until(lambda: link.up)
        bench.links.tls = bus_tls(settings(certificates, "foreign", "foreign", "foreign"))
        link.send(JOB_PACKET)
        bench.turn()
        peer.settimeout(5)
        assert receive(peer, len(JOB_PACKET)) == JOB_PACKET
        stranger = bench.admit()
        stranger.setblocking(False)
        context = bus_tls(bench.config)
        assert context is not None
        with context.client.wrap_socket(stranger, do_handshake_on_connect=False) as refused:
            _shake(bench, refused)
            bench.turns_until(lambda: bench.links.count == 1)
    assert bench.heard()[0] == "opened"
    assert "accepted" not in bench.heard()
