"""Clients that know nothing of the processes of a server: all use one port."""

import os
import re
import signal
import socket
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from disque_trio.resp.command import encode_command
from tests.support.harness import HANG_SECONDS, LiveNode, Wire, wait_until
from tests.support.live_helpers import add_job, pairs
from tests.support.one_port import OnePort, use
from tests.support.several import NOT_YET, Start, is_alive


@pytest.mark.pure
def test_clients_come_to_all_processes_and_meet_where_their_queue_is(several: Start) -> None:
    port = OnePort(several())
    queues = [port.queue(number % 2) for number in range(6)]
    producers = [port.client() for _ in queues]
    consumers = [port.client() for _ in queues]

    def elsewhere() -> list[object]:
        """What the processes where the queues are not know of these."""
        return [port.admins[n % 2 - 1]("QSTAT", queue) for n, queue in enumerate(queues)]

    def pass_jobs(times: int) -> None:
        for _ in range(times):
            for producer, consumer, queue in zip(producers, consumers, queues, strict=True):
                id = add_job(producer, queue, "body", "REPLICATE", 1)
                job = consumer("GETJOB", "FROM", queue)
                assert isinstance(job, list)
                assert job[0][1] == id.encode()
                assert consumer("ACKJOB", id) == 1

    def came() -> list[object]:
        return [pairs(shown)["jobs-in"] if shown else None for shown in elsewhere()]

    pass_jobs(4)
    for number, pair in enumerate(zip(producers, consumers, strict=True)):
        for client in pair:
            port.move(client, number % 2, queues[number])
    pass_jobs(3)  # what was asked for before the clients met is over then
    before = came()
    pass_jobs(20)
    assert came() == before
    assert sum(port.handed_over()) <= 12


@pytest.mark.pure
def test_a_client_is_who_it_was_after_it_was_handed_over(several: Start) -> None:
    port = OnePort(several())
    client = port.client_of(0)
    client("HELLO", 3, "SETNAME", "worker")
    client("CLIENT", "SETINFO", "LIB-NAME", "redis-py")
    client("CLIENT", "SETINFO", "LIB-VER", "5")
    id = client("CLIENT", "ID")
    before = port.clients(0)[str(id)]
    port.move(client, 1)
    assert port.handed_over() == [1, 0]
    assert str(id) not in port.clients(0)
    after = port.clients(1)[str(id)]
    for field in ("addr", "laddr", "name", "user", "resp", "lib-name", "lib-ver"):
        assert after[field] == before[field], field
    assert (after["resp"], after["name"], after["lib-name"]) == ("3", "worker", "redis-py")
    assert client("CLIENT", "ID") == id
    assert isinstance(client("HELLO", 3), dict)
    assert port.admins[1]("CLIENT", "KILL", "ID", str(id)) == 1
    assert client.closed()


@pytest.mark.pure
def test_what_a_client_had_sent_is_served_once_and_in_order(several: Start) -> None:
    port = OnePort(several())
    queue = port.queue(1)
    client = port.client_of(0)
    requests = [("ECHO", f"{n}") if n % 3 else ("QLEN", queue) for n in range(6000)]
    data = b"".join(encode_command(request) for request in requests)
    sender = threading.Thread(target=client.raw, args=(data,))
    sender.start()
    replies = [client.read() for _ in requests]
    sender.join()
    assert replies == [b"%d" % n if n % 3 else 0 for n in range(6000)]
    port.move(client, 1, queue)
    assert port.handed_over() == [1, 0]


def test_a_client_that_was_handed_over_waits_for_jobs(several: Start) -> None:
    port = OnePort(several())
    queue = port.queue(1)
    client = port.client_of(0)
    use(client, queue, 2)
    client.send("GETJOB", "FROM", queue)  # with this one it is handed over
    nodes = port.server.nodes  # the second one, unless it is so busy that the first goes on
    wait_until(lambda: "1" in [node.info("clients")["blocked_clients"] for node in nodes])
    id = add_job(port.admins[1], queue, "body")
    job = client.read()
    assert isinstance(job, list)
    assert job[0][1] == id.encode()
    assert client("ACKJOB", id) == 1


def test_a_client_that_changes_its_queue_is_handed_over_again(several: Start) -> None:
    port = OnePort(several())
    client = port.client_of(0)
    port.move(client, 1)
    port.move(client, 0)
    assert port.handed_over() == [1, 1]


def test_clients_that_mix_queues_meet_at_the_first_process(several: Start) -> None:
    port = OnePort(several())
    names = [port.queue(0), port.queue(1)]
    clients = [port.client_of(0), port.client_of(1)]
    for _ in range(100):
        for client in clients:
            use(client, names[0], 1)
            use(client, names[1], 1)
    assert port.handed_over() == [0, 1]
    assert {str(client("CLIENT", "ID")) for client in clients} <= set(port.clients(0))


def test_a_client_keeps_its_user_and_stays_if_that_is_another_one_there(several: Start) -> None:
    port = OnePort(several())
    for admin in port.admins:
        admin("ACL", "SETUSER", "shop", "on", ">secret", "~*", "+@all")
    shop = port.client_of(0)
    assert shop("AUTH", "shop", "secret") == b"OK"
    port.move(shop, 1)
    assert shop("ACL", "WHOAMI") == b"shop"
    assert port.handed_over() == [1, 0]
    port.admins[1]("ACL", "SETUSER", "shop", "-qlen")
    assert "NOPERM" in shop.error("QLEN", "q")
    stays = port.client_of(0)
    assert stays("AUTH", "shop", "secret") == b"OK"
    use(stays, port.queue(1))
    assert port.handed_over() == [1, 0]


def test_a_client_stays_if_the_other_process_has_all_it_may_have(several: Start) -> None:
    port = OnePort(several())
    client = port.client_of(0)
    port.admins[1]("CONFIG", "SET", "maxclients", 1)
    use(client, port.queue(1), 10)
    assert str(client("CLIENT", "ID")) in port.clients(0)
    assert port.handed_over() == [0, 0]


def test_who_asks_about_a_node_or_a_job_at_the_common_port_gets_the_right_one(
    several: Start,
) -> None:
    port = OnePort(several())
    first, second = (admin("CLUSTER", "MYID") for admin in port.admins)
    for number in range(2):
        hello = port.client_of(number)("HELLO")
        assert isinstance(hello, list)
        assert hello[1] == first
        assert port.client_of(number)("CLUSTER", "MYID") == first
        id = add_job(port.admins[number], "mail", "body", "REPLICATE", 1)
        for other in range(2):
            assert port.client_of(other)("SHOW", id)
    assert port.server.nodes[1].ask("CLUSTER", "MYID") == second


def test_a_client_is_served_on_if_the_other_process_does_not_answer(several: Start) -> None:
    port = OnePort(several())
    first, second = (port.client_of(0) for _ in range(2))
    pid = port.server.pid(1)
    os.kill(pid, signal.SIGSTOP)
    use(first, port.queue(1))
    queue = port.queue(1)
    use(second, queue, 2)
    second.send("QLEN", queue)  # with this one it is offered
    os.kill(pid, signal.SIGKILL)
    assert second.read() == 0
    use(second, queue)
    use(first, port.queue(1))
    ids = {str(client("CLIENT", "ID")) for client in (first, second)}
    assert ids <= set(port.clients(0))


@pytest.mark.pure
def test_clients_go_on_while_a_process_is_killed_or_restarts(several: Start) -> None:
    server = several("--appendonly", "yes", "--appendfsync", "always")
    port = OnePort(server)
    over = threading.Event()
    added: set[str] = set()
    rounds = [0, 0]

    def produce(number: int, queue: str) -> None:
        client: Wire | None = None
        while not over.is_set():
            try:
                client = client or port.client()
                id = client("ADDJOB", queue, "body", 0, "REPLICATE", 1, "RETRY", 1)
            except NOT_YET:
                client = None
                continue
            if isinstance(id, bytes):
                added.add(id.decode())
                rounds[number] += 1

    def is_another(node: LiveNode, run_id: str) -> bool:
        """Whether ``node`` is not the one with this ``run_id`` any more, and all serve."""
        try:
            return server.serves() and node.info("server")["run_id"] != run_id
        except NOT_YET:
            return False  # the first one restarts after the others

    threads = [
        threading.Thread(target=produce, args=(number, port.queue(number))) for number in range(2)
    ]
    for thread in threads:
        thread.start()

    def all_go_on() -> None:
        goals = [done + 20 for done in rounds]
        wait_until(lambda: all(done >= goal for done, goal in zip(rounds, goals, strict=True)))

    try:
        all_go_on()
        pid = server.pid(1)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid))
        all_go_on()
        wait_until(server.serves)
        all_go_on()
        for node in server.nodes:
            run_id = node.info("server")["run_id"]
            node.wire().send("RESTART")
            all_go_on()
            wait_until(partial(is_another, node, run_id))
        all_go_on()
    finally:
        over.set()
        for thread in threads:
            thread.join()
    admins = OnePort(server).admins
    lost = [id for id in added if not any(admin("SHOW", id) for admin in admins)]
    assert lost == []


def open_files(pid: int) -> set[str]:
    """What the descriptors of a process lead to."""
    files = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            files.add(str(file.readlink()))
    return files


def test_processes_survive_what_another_release_may_say(several: Start) -> None:
    server = several()
    port = OnePort(server)
    listening = r" 00010000 .* (\d+) @(disque-\w+-1)$"
    found = re.findall(listening, Path("/proc/net/unix").read_text(), re.MULTILINE)
    opened = open_files(server.pid(1))
    [name] = [name for inode, name in found if f"socket:[{inode}]" in opened]  # not other servers'
    for words in (b"x", b"OFFER", b"OFFER 1 2", b"TAKE 1", b"READY 1", b"HERE 0 2", b"NODE x 1"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
            stranger.connect("\0" + name)
            stranger.settimeout(HANG_SECONDS)
            assert stranger.recv(100).startswith(b"*3\r\n$4\r\nNODE")
            with open("/dev/null") as file:
                socket.send_fds(stranger, [encode_command(words.split())], [file.fileno()])
            if not words.startswith((b"READY", b"NODE")):
                assert stranger.recv(100) == b""
    client = port.client_of(0)
    use(client, port.queue(1))
    assert port.handed_over() == [1, 0]


def test_a_node_that_leaves_hands_its_clients_over(several: Start) -> None:
    port = OnePort(several())
    port.admins[0]("CLUSTER", "LEAVING", "yes")
    client = port.client_of(0)
    queue = port.queue(0)
    port.move(client, 1, queue)
    assert port.handed_over() == [1, 0]
    assert add_job(client, queue, "body", "REPLICATE", 1)
