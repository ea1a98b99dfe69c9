"""The container with certificates, and what it backs up."""

import json
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import make_authority, sign
from tests.support.containers import Containers
from tests.support.harness import wait_until

pytestmark = pytest.mark.live

FIRST, SECOND = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    started = Containers(tmp_path)
    yield started
    started.end()


@pytest.fixture
def certificates(tmp_path: Path, containers: Containers) -> Path:
    """A directory as Kubernetes mounts a Secret of cert-manager; ``renew`` writes it again."""
    made = tmp_path / "made"
    made.mkdir()
    make_authority(made, "ours")
    place = tmp_path / "tls"
    place.mkdir()
    shutil.copy(made / "ours-ca.pem", place / "ca.crt")
    renew(place)
    containers.environ |= {"DISQUE_TLS_DIR": str(place), "DISQUE_TLS_LOOK": "0.2"}
    return place


def renew(place: Path) -> None:
    """Write another certificate of the same authority."""
    made = place.parent / "made"
    sign(made, "ours", "node", names="subjectAltName=DNS:jobs")
    shutil.copy(made / "node.pem", place / "tls.crt")
    shutil.copy(made / "node.key", place / "tls.key")


def shown(containers: Containers, place: Path, address: str) -> str:
    """The certificate that a node shows; empty if its key is another one for a moment."""
    port = int(containers.environ["DISQUE_PORT"])
    try:
        return ssl.get_server_certificate((address, port), ca_certs=str(place / "ca.crt"))
    except OSError:
        return ""


def secure(containers: Containers, place: Path, address: str, *command: str) -> str:
    options = ("--tls", "--cacert", str(place / "ca.crt"), "--sni", "jobs")
    return containers.ask(address, *options, *command)


def test_nodes_with_certificates_meet_and_serve_nobody_without_tls(
    containers: Containers, certificates: Path
) -> None:
    for address in (FIRST, SECOND):
        containers.start(address)
        wait_until(lambda address=address: secure(containers, certificates, address, "ping"))
    assert containers.run("healthy").returncode == 0
    assert containers.ask(FIRST, "ping") == ""
    assert containers.run("meet", SECOND).returncode == 0
    wait_until(
        lambda: secure(containers, certificates, FIRST, "cluster", "nodes").count(" connected") == 2
    )
    job = ("addjob", "q", "body", "5000", "replicate", "2")
    assert secure(containers, certificates, FIRST, *job).startswith("D-")


def test_a_node_shows_a_renewed_certificate_without_a_restart(
    containers: Containers, certificates: Path
) -> None:
    containers.start(FIRST)
    wait_until(lambda: secure(containers, certificates, FIRST, "ping"))
    first = shown(containers, certificates, FIRST)
    assert first
    renew(certificates)
    new = (certificates / "tls.crt").read_text().split()
    wait_until(lambda: shown(containers, certificates, FIRST).split() == new)
    assert first.split() != new
    assert containers.running[0].poll() is None


def test_clients_show_a_certificate_if_they_have_to(
    containers: Containers, certificates: Path
) -> None:
    containers.environ["DISQUE_TLS_CLIENTS"] = "yes"
    containers.start(FIRST)
    wait_until(lambda: containers.run("healthy").returncode == 0)
    assert secure(containers, certificates, FIRST, "ping") == ""


def test_the_last_copies_of_a_node_are_kept(containers: Containers, tmp_path: Path) -> None:
    containers.start(FIRST)
    containers.start(SECOND)
    wait_until(lambda: containers.ask(FIRST, "ping") == containers.ask(SECOND, "ping") == "PONG\n")
    containers.ask(FIRST, "cluster", "meet", SECOND, containers.environ["DISQUE_PORT"])
    wait_until(lambda: containers.ask(FIRST, "cluster", "nodes").count(" connected") == 2)
    containers.ask(FIRST, "addjob", "q", "body", "5000", "replicate", "1")
    copies = tmp_path / "copies"
    own = {"DISQUE_BACKUP_NODE": FIRST, "DISQUE_DIR": str(containers.place(FIRST))}
    older = [copies / FIRST / f"2026010{number}T000000Z" for number in range(1, 5)]
    for directory in older:
        directory.mkdir(parents=True)
    # Those of the other node are not reached: in Kubernetes they are on another volume.
    shutil.move(containers.place(SECOND), tmp_path / "elsewhere")
    done = containers.run("backup", str(copies), DISQUE_BACKUP_KEEP="3", **own)
    assert done.returncode == 0, done.stderr
    kept = sorted((copies / FIRST).iterdir())
    assert kept[:2] == older[2:]
    assert str(kept[2]) in done.stdout
    (line,) = (kept[2] / "backup.json").read_text().splitlines()
    told = json.loads(line)
    assert told["id"] == containers.ask(FIRST, "cluster", "myid").strip()
    assert b"body" in (kept[2] / told["id"] / "disque.aof").read_bytes()


def test_a_copy_of_nothing_is_a_failure(containers: Containers, tmp_path: Path) -> None:
    own = {"DISQUE_BACKUP_NODE": FIRST, "DISQUE_DIR": str(tmp_path)}
    assert containers.run("backup", str(tmp_path / "copies"), **own).returncode != 0
    assert not list((tmp_path / "copies" / FIRST).glob("*Z"))
