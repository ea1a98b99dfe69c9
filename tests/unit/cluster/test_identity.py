"""cluster-identity on the bus: which peers get in, and that bytes get through."""

import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.exceptions import UnsupportedAlgorithm

from disque_trio.cluster import crypto
from disque_trio.cluster.bus import PATIENCE
from disque_trio.cluster.crypto import NodeKey
from disque_trio.cluster.identities import Identities
from disque_trio.cluster.keyring import BY_MEET, Keyring
from disque_trio.cluster.keys_file import (
    KEY,
    KEYRING,
    KeysFileError,
    copy_key,
    is_key_of_another,
    load_key,
    load_keyring,
    save_keyring,
)
from disque_trio.cluster.members import Members
from disque_trio.cluster.tls import bus_tls
from disque_trio.cluster.trust import Trust
from disque_trio.config import Config
from disque_trio.form import form
from disque_trio.protocol.identity import Handshake
from disque_trio.protocol.seal import Seal, master_key
from tests.support.bus_bench import JOB_PACKET, PACKETS, PING_PACKET, Bench, is_closed, receive
from tests.support.certificates import make_certificates

SECRET = "a secret of all our nodes"
OURS, FOREIGN = NodeKey.generate(), NodeKey.generate()
HELLO = 145


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    it = Bench(tmp_path, Config())
    trust = Trust(OURS.key, Keyring(), PACKETS, Members())
    trust.required = True
    trust.keyring.pin(b"d" * 40, b"x" * 32, BY_MEET)  # it is not alone
    it.links.identities = Identities(OURS, trust, PACKETS)
    yield it
    it.close()


def identities(bench: Bench) -> Identities:
    found = bench.links.identities
    assert found is not None
    return found


def heard_nothing(bench: Bench) -> bool:
    bench.turns_until(lambda: bench.links.count == 0)
    bench.turn(0)
    return not bench.notes.packets and set(bench.heard()) <= {"lost"}


def exchange_large(bench: Bench) -> None:
    out, back = bench.joined()
    assert out.peer == back.peer == PACKETS.id
    large = [PACKETS.jobs(4, [bytes((n,)) * (3 << 20)]) for n in range(4)]
    for n, packet in enumerate(large):
        (out, back)[n % 2].send(packet)
        out.send(JOB_PACKET)
    bench.turns_until(lambda: len(bench.notes.packets) == 9)
    assert sorted(bench.notes.packets) == sorted([PING_PACKET, *large, *[JOB_PACKET] * 4])
    assert bench.heard() == ["opened", "accepted"]


@pytest.mark.parametrize("secret", [False, True])
@pytest.mark.parametrize("encrypt", [False, True])
def test_large_packets_get_through(bench: Bench, secret: bool, encrypt: bool) -> None:
    if secret:
        bench.links.use_secrets([SECRET])
    identities(bench).encrypt = encrypt
    exchange_large(bench)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")
def test_it_works_over_tls(bench: Bench, tmp_path: Path) -> None:
    make_certificates(tmp_path, "ours")
    files = {"cert-file": "ours.pem", "key-file": "ours.key", "ca-cert-file": "ours-ca.pem"}
    paths = {f"tls-{name}": str(tmp_path / file) for name, file in files.items()}
    bench.links.tls = bus_tls(Config({"tls-cluster": True, **paths}))
    bench.links.use_secrets([SECRET])
    exchange_large(bench)


def test_a_node_without_identity_is_not_heard(bench: Bench) -> None:
    other = bench.admit()
    other.sendall(PING_PACKET)
    assert heard_nothing(bench)
    assert is_closed(other)
    assert bench.stats.cluster_links_refused == 1
    assert identities(bench).trust.refused == 1
    assert bench.links.guarded


def test_a_stranger_hears_nothing(bench: Bench) -> None:
    other = bench.admit()
    stranger = Handshake(FOREIGN, b"f" * 40, True, True, False, lambda id, key: "")
    other.sendall(stranger.begin(b""))
    assert heard_nothing(bench)
    other.settimeout(5)
    try:
        assert other.recv(1000) == b""
    except ConnectionError:
        pass
    assert identities(bench).trust.refused == 1


@pytest.mark.parametrize("required", [False, True])
def test_a_wrong_secret_is_no_matter_of_identities(bench: Bench, required: bool) -> None:
    identities(bench).trust.required = required
    bench.links.use_secrets([SECRET])
    bench.connect()
    other = bench.accept()
    other.sendall(b"no greeting at all, and long enough to be sure of that")
    assert heard_nothing(bench)
    assert bench.stats.cluster_links_refused == 1
    assert identities(bench).trust.refused == 0


def test_strangers_cannot_silence_the_log(bench: Bench, tmp_path: Path) -> None:
    links = bench.links
    now = bench.clock.now()
    links.cron(now)
    log = tmp_path / "log"
    for n in range(1000):
        links.tell_refused(f"a node was refused: its key {n} is unknown here", "192.0.2.7")
    few = len(log.read_text().splitlines())
    assert 0 < few < 200
    links.tell_once("something else", "192.0.2.7")
    links.tell_once("something else", "192.0.2.7")
    links.cron(now + 3_600_000)
    links.tell_refused("a node was refused: another reason", "192.0.2.8")
    links.tell_once("something else", "192.0.2.7")
    assert len(log.read_text().splitlines()) == few + 3


def test_a_node_with_identity_is_not_heard_by_one_without(bench: Bench) -> None:
    bench.links.identities = None
    other = bench.admit()
    other.sendall(Handshake(FOREIGN, b"f" * 40, True, True, False, lambda id, key: "").begin(b""))
    assert heard_nothing(bench)
    assert bench.stats.cluster_links_refused == 1


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


@pytest.mark.parametrize("secret", [False, True])
def test_where_identity_is_optional_others_are_taken(bench: Bench, secret: bool) -> None:
    if secret:
        bench.links.use_secrets([SECRET])
    identities(bench).trust.required = False
    other = bench.admit()
    other.settimeout(5)
    seal = Seal([master_key(SECRET.encode())], b"n" * 32, True)
    if secret:
        seal.open(receive(other, 40))
        other.sendall(seal.greeting + seal.answer())
        bench.turns_until(lambda: bench.links.unproven)
        bench.turn()
        seal.open(receive(other, 20))
    other.sendall(seal.close(PING_PACKET) if secret else PING_PACKET)
    bench.turns_until(lambda: bench.notes.packets)
    assert bench.notes.packets == [PING_PACKET]
    assert bench.heard() == ["accepted"]
    assert not bench.links.guarded or secret


def test_where_identity_is_optional_the_second_attempt_goes_without(bench: Bench) -> None:
    identities(bench).trust.required = False
    link = bench.connect()
    other = bench.accept()
    bench.turns_until(lambda: link.connected)
    assert len(receive(other, HELLO)) == HELLO
    other.close()
    bench.turns_until(lambda: bench.heard() == ["lost"])
    assert bench.stats.cluster_links_refused == 0
    link = bench.connect()
    other = bench.accept()
    bench.turns_until(lambda: link.up)
    link.send(PING_PACKET)
    bench.turn()
    assert receive(other, len(PING_PACKET)) == PING_PACKET
    other.close()
    bench.turns_until(lambda: bench.heard() == ["lost", "opened", "lost"])
    link = bench.connect()  # the other node may have begun to show its key
    other = bench.accept()
    bench.turns_until(lambda: link.connected)
    assert receive(other, HELLO)[:8] == b"DTident1"


def test_where_identity_is_required_no_attempt_goes_without(bench: Bench) -> None:
    for _ in range(2):
        link = bench.connect()
        other = bench.accept()
        bench.turns_until(lambda link=link: link.connected)
        assert receive(other, HELLO)[:8] == b"DTident1"
        other.close()
        bench.turns_until(lambda: bench.links.count == 0)
    assert bench.stats.cluster_links_refused == 2


def test_the_links_of_a_key_that_does_not_count_any_more_are_closed(bench: Bench) -> None:
    bench.joined()
    bench.links.part_with({FOREIGN.key})
    assert bench.links.count == 2
    bench.links.part_with({FOREIGN.key, OURS.key})
    assert bench.links.count == 0
    joined_before = len(bench.heard())
    bench.turn(0)
    assert bench.heard()[joined_before:] == ["lost", "lost"]


def changed(sock: socket.socket, data: bytes, at: int) -> None:
    altered = bytearray(data)
    altered[at] ^= 1
    sock.sendall(altered)


@pytest.mark.parametrize("at", [0, 4, 19, 20, 30])
def test_a_changed_record_ends_the_connection(bench: Bench, at: int) -> None:
    trust = identities(bench).trust
    trust.keyring.pin(b"f" * 40, FOREIGN.key, BY_MEET)
    other = bench.admit()
    other.settimeout(5)
    peer = Handshake(FOREIGN, b"f" * 40, True, True, False, lambda id, key: "")
    other.sendall(peer.begin(b""))
    bench.turn()
    other.sendall(peer.receive(receive(other, HELLO)))
    bench.turn()
    peer.receive(receive(other, 64))
    assert peer.records is not None
    changed(other, peer.records.close(PING_PACKET), at)
    assert heard_nothing(bench)


def test_the_private_key_is_made_once_and_only_for_its_owner(tmp_path: Path) -> None:
    conf = str(tmp_path / "nodes.conf")
    key = load_key(conf)
    file = tmp_path / f"nodes.conf{KEY}"
    assert file.stat().st_mode & 0o777 == 0o600
    assert load_key(conf).key == key.key
    file.chmod(0o640)
    with pytest.raises(KeysFileError, match="mode 640"):
        load_key(conf)
    file.chmod(0o600)
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(KeysFileError, match="is not the private key"):
        load_key(conf)


@pytest.mark.skipif(form() != "pure Python", reason="compiled code keeps what it has imported")
def test_without_the_package_the_node_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "disque_trio.cluster.crypto", None)
    with pytest.raises(KeysFileError, match=r"cryptography.*pip install.*identity"):
        load_key(str(tmp_path / "nodes.conf"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("Ed25519PrivateKey.generate", "Ed25519"),
        ("X25519PrivateKey.generate", "X25519"),
        ("ChaCha20Poly1305", "ChaCha20-Poly1305"),
    ],
)
def test_without_an_algorithm_the_node_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, algorithm: str
) -> None:
    def missing(*args: object) -> None:
        raise UnsupportedAlgorithm("not here")

    *owner, last = name.split(".")
    if owner:
        monkeypatch.setattr(crypto, owner[0], SimpleNamespace(**{last: missing}))
    else:
        monkeypatch.setattr(crypto, last, missing)
    with pytest.raises(KeysFileError, match=f"OpenSSL has no {algorithm}"):
        load_key(str(tmp_path / "nodes.conf"))
    assert list(tmp_path.iterdir()) == []


def test_a_key_goes_along_to_another_directory(tmp_path: Path) -> None:
    here, there = str(tmp_path / "here.conf"), str(tmp_path / "there.conf")
    key = load_key(here)
    assert not is_key_of_another(there, key.pem())
    assert copy_key(there, key.pem()) is None
    assert load_key(there).key == key.key
    assert not is_key_of_another(there, key.pem())
    assert is_key_of_another(there, FOREIGN.pem())
    assert copy_key(there, FOREIGN.pem()) is None
    assert load_key(there).key == key.key  # one that is there stays


def test_the_keys_of_nodes_survive_and_a_damaged_file_is_refused(tmp_path: Path) -> None:
    conf = str(tmp_path / "nodes.conf")
    assert load_keyring(conf).dump() == ""
    keyring = Keyring()
    keyring.pin(b"a" * 40, FOREIGN.key, BY_MEET)
    keyring.decide(FOREIGN.key, True)
    assert save_keyring(conf, keyring.dump()) is None
    assert load_keyring(conf).dump() == keyring.dump()
    (tmp_path / f"nodes.conf{KEYRING}").write_text("nonsense")
    with pytest.raises(KeysFileError, match="line 1"):
        load_keyring(conf)
