"""What the container does when Kubernetes stops it: a node that comes back keeps its jobs, one that
was scaled away gives them to the others first. The API server is a small one of this test."""

import json
import os
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import make_authority, sign
from tests.support.containers import SCALED_DOWN, SCRIPT, Containers
from tests.support.harness import HANG_SECONDS, wait_until

pytestmark = pytest.mark.live

HOST = "127.0.0.1"
TOKEN = "token-of-a-node"
PATH = "/apis/apps/v1/namespaces/shop/statefulsets/jobs"
POD = {"DISQUE_POD": "jobs-2"}
STAYS, GOES = 1, 0  # exit statuses


class ApiServer:
    """The API server, which knows one StatefulSet, and whoever has the token. status: what it
    answers."""

    def __init__(self, directory: Path) -> None:
        self.found: dict[str, Any] = {"metadata": {"name": "jobs"}, "spec": {"replicas": 3}}
        self.status = 200
        make_authority(directory, "ours")
        sign(directory, "ours", "api")
        account = directory / "account"
        account.mkdir()
        (account / "ca.crt").write_bytes((directory / "ours-ca.pem").read_bytes())
        (account / "namespace").write_text("shop")
        (account / "token").write_text(f"{TOKEN}\n")
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = self.headers["Authorization"] == f"Bearer {TOKEN}"
                status = 403 if not known else 404 if self.path != PATH else api.status
                body = json.dumps(api.found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer((HOST, 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "api.pem", directory / "api.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()
        self.environ = {
            "KUBERNETES_SERVICE_HOST": HOST,
            "KUBERNETES_SERVICE_PORT": str(self.server.server_port),
            "DISQUE_ACCOUNT_DIR": str(account),
        }

    def end(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    place = tmp_path / "api"
    place.mkdir()
    server = ApiServer(place)
    yield server
    server.end()


@pytest.fixture
def containers(tmp_path: Path, api: ApiServer) -> Iterator[Containers]:
    started = Containers(tmp_path)
    started.environ |= api.environ
    yield started
    started.end()


def asked(api: ApiServer, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(SCALED_DOWN)],
        env={"PATH": os.environ["PATH"], **api.environ, **POD, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )


@pytest.mark.parametrize(
    ("spec", "metadata", "status"),
    [
        ({"replicas": 3}, {}, STAYS),
        ({"replicas": 5}, {}, STAYS),
        ({"replicas": 2}, {}, GOES),
        ({"replicas": 1}, {}, GOES),
        ({}, {}, GOES),  # one, by default
        ({"replicas": 0}, {}, STAYS),  # all of them stop: nobody could take the jobs
        ({"replicas": 2}, {"deletionTimestamp": "2026-11-30T00:00:00Z"}, STAYS),
        ({"replicas": 2, "ordinals": {"start": 1}}, {}, STAYS),
        ({"replicas": 1, "ordinals": {"start": 1}}, {}, GOES),
        ({"replicas": 2, "ordinals": {"start": 3}}, {}, GOES),
    ],
)
def test_a_pod_knows_whether_it_comes_back(
    api: ApiServer, spec: dict[str, Any], metadata: dict[str, str], status: int
) -> None:
    api.found = {"metadata": metadata, "spec": spec}
    assert asked(api).returncode == status


@pytest.mark.parametrize(
    "environ",
    [
        {"DISQUE_POD": "no-number-x"},
        {"DISQUE_POD": "other-2"},  # a StatefulSet that is not there
        {"KUBERNETES_SERVICE_PORT": "1"},
        {"DISQUE_ACCOUNT_DIR": "/nonexistent"},
    ],
)
def test_a_pod_that_cannot_find_out_is_taken_for_one_that_comes_back(
    api: ApiServer, environ: dict[str, str]
) -> None:
    api.found["spec"]["replicas"] = 1
    done = asked(api, **environ)
    assert done.returncode == STAYS
    assert "taken for a restart" in done.stderr


@pytest.mark.parametrize("status", [403, 500])
def test_so_is_one_that_gets_no_answer(api: ApiServer, status: int) -> None:
    api.found["spec"]["replicas"] = 1
    api.status = status
    assert asked(api).returncode == STAYS


# ---- nodes --------------------------------------------------------------------------------------

ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


def started(containers: Containers, **environ: str) -> None:
    """Start three nodes that know each other; the last one is the pod jobs-2."""
    for address in ADDRESSES:
        containers.start(address, **environ)
    for address in ADDRESSES:
        wait_until(lambda address=address: containers.ask(address, "ping") == "PONG\n")
    for address in ADDRESSES[1:]:
        containers.ask(address, "cluster", "meet", ADDRESSES[0], containers.environ["DISQUE_PORT"])
    wait_until(lambda: all(known(containers, address) == 3 for address in ADDRESSES))


def known(containers: Containers, address: str) -> int:
    """How many nodes a node knows."""
    told = containers.ask(address, "cluster", "nodes")
    return told.count(" connected")


def stopping(containers: Containers, address: str, **environ: str) -> Any:
    """Run what runs before the container of a node is stopped."""
    # It asks the node of its own pod, at 127.0.0.1.
    disque = containers.directory / "bin" / "disque"
    if not (containers.directory / "bin" / "real").exists():
        disque.rename(disque.with_name("real"))
        disque.write_text('#!/bin/sh\nexec real ${NODE:+-h "$NODE"} "$@"\n')
        disque.chmod(0o755)
    place = str(containers.place(address))
    return containers.run("leave", NODE=address, DISQUE_DIR=place, **POD, **environ)


def add(containers: Containers, address: str, number: int) -> set[str]:
    """Add jobs of which nobody else has a copy, and that no worker wants."""
    added = set()
    for count in range(number):
        delay = ("delay", "1") if count % 2 else ()
        job = ("addjob", "q", str(count), "5000", "replicate", "1", *delay)
        added.add(containers.ask(address, *job).strip())
    return added


def test_a_pod_that_is_scaled_away_gives_its_jobs_away_and_is_forgotten(
    containers: Containers, api: ApiServer
) -> None:
    started(containers)
    away = ADDRESSES[2]
    added = add(containers, away, 20)
    api.found["spec"]["replicas"] = 2
    done = stopping(containers, away)
    assert done.returncode == 0, done.stderr
    containers.running[2].send_signal(signal.SIGTERM)
    assert containers.running[2].wait(HANG_SECONDS) == 0
    wait_until(lambda: [known(containers, address) for address in ADDRESSES[:2]] == [2, 2])
    found: set[str] = set()

    def all_are_there() -> bool:
        took = ("getjob", "timeout", "1000", "count", "100", "from", "q")
        got = containers.ask(ADDRESSES[0], *took).split()
        found.update(word for word in got if word.startswith("D-"))
        return found == added

    wait_until(all_are_there)

    # Scaled up again, it is a new node, with its old volume.
    api.found["spec"]["replicas"] = 3
    before = containers.place(away) / "nodes.conf"
    old = before.read_text().split()[0]
    containers.start(away)
    wait_until(lambda: containers.ask(away, "ping") == "PONG\n")
    assert containers.ask(away, "cluster", "leaving") == "no\n"
    assert containers.ask(away, "cluster", "myid").strip() != old
    assert "registered_jobs:0" in containers.ask(away, "info", "jobs")


def test_a_pod_that_comes_back_keeps_its_jobs_and_is_not_waited_for(containers: Containers) -> None:
    started(containers)
    again = ADDRESSES[2]
    added = add(containers, again, 3)
    done = stopping(containers, again)
    assert done.returncode == 0, done.stderr
    assert containers.ask(again, "cluster", "leaving") == "no\n"
    containers.running[2].send_signal(signal.SIGTERM)
    assert containers.running[2].wait(HANG_SECONDS) == 0
    containers.start(again)
    wait_until(lambda: f"registered_jobs:{len(added)}" in containers.ask(again, "info", "jobs"))


def test_a_node_that_hangs_does_not_hold_up_an_update(containers: Containers) -> None:
    containers.start(ADDRESSES[0])
    wait_until(lambda: containers.ask(ADDRESSES[0], "ping") == "PONG\n")
    pid = int((containers.place(ADDRESSES[0]) / "container.pid").read_text())
    assert pid == containers.running[0].pid
    os.kill(pid, signal.SIGSTOP)
    assert stopping(containers, ADDRESSES[0], DISQUE_STOP_WAIT="0").returncode == 0
    assert containers.running[0].wait(HANG_SECONDS) == -signal.SIGKILL


def test_a_pod_whose_jobs_nobody_can_take_keeps_them(
    containers: Containers, api: ApiServer
) -> None:
    started(containers)
    away = ADDRESSES[2]
    add(containers, away, 3)
    for address in ADDRESSES[:2]:
        containers.ask(address, "cluster", "leaving", "yes")
    wait_until(lambda: containers.ask(away, "cluster", "nodes").count("leaving") == 2)
    api.found["spec"]["replicas"] = 2
    done = stopping(containers, away, DISQUE_LEAVE_WAIT="0.5")
    assert done.returncode != 0
    assert "still has 3 jobs" in done.stderr
    assert containers.ask(away, "cluster", "leaving") == "no\n"
    containers.running[2].send_signal(signal.SIGTERM)
    assert containers.running[2].wait(HANG_SECONDS) == 0
    containers.start(away)
    wait_until(lambda: "registered_jobs:3" in containers.ask(away, "info", "jobs"))


def test_a_pod_that_was_killed_while_it_left_stays_when_it_is_back(containers: Containers) -> None:
    containers.start(ADDRESSES[0])
    wait_until(lambda: containers.ask(ADDRESSES[0], "ping") == "PONG\n")
    containers.ask(ADDRESSES[0], "cluster", "leaving", "yes")
    marker = containers.place(ADDRESSES[0]) / "leaving"
    marker.touch()
    assert containers.run("meet", DISQUE_DIR=str(marker.parent)).returncode == 0
    assert containers.ask(ADDRESSES[0], "cluster", "leaving") == "no\n"
    assert not marker.exists()


def test_nodes_that_have_no_names_yet_are_met_when_they_have(containers: Containers) -> None:
    for address in ADDRESSES[:2]:
        containers.start(address)
        wait_until(lambda address=address: containers.ask(address, "ping") == "PONG\n")
    names = containers.directory / "names"
    # An unknown name before the known one: each is tried again by itself.
    names.write_text(f"no-such-name.invalid\n{ADDRESSES[1]}\n")
    assert containers.run("meet-soon", str(names)).returncode == 0
    wait_until(lambda: known(containers, ADDRESSES[0]) == 2)


def test_the_script_is_what_the_image_runs() -> None:
    image = (SCRIPT.parent / "Containerfile").read_text()
    for program in (SCRIPT, SCALED_DOWN):
        assert f"config/container/{program.name}" in image
        assert program.stat().st_mode & 0o111 == 0o111
