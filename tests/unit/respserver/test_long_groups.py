"""A long group runs in slices: nothing happens to jobs in between, but PINGs are answered."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import hiredis
import pytest
import trio
import trio.testing

from disque_trio.respserver.groups import RUN, SHORT
from disque_trio.respserver.io.serving import LONG_COSTS, REPLIES_A_TURN
from tests.support.harness import HANG_SECONDS
from tests.unit.respserver.test_last_words import Service
from tools.bench.inprocess import Desk, make_node, request

PING = b"PING\r\n"
COMMANDS = 4 * RUN
MS = 1_000_000  # ns


@pytest.fixture
def service() -> Iterator[Service]:
    it = Service()
    yield it
    it.close()


class Talk:
    """A client that reads its replies when asked."""

    def __init__(self, service: Service) -> None:
        self.sock = service.client()
        self._reader = hiredis.Reader()

    def send(self, *words: bytes) -> None:
        self.sock.send(request(*words))

    def abort(self) -> None:
        """Disconnect at once, rather than say that nothing more will be sent."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def replies(self) -> list[object]:
        """The replies that have arrived."""
        try:
            while data := self.sock.recv(1 << 20):
                self._reader.feed(data)
        except BlockingIOError:
            pass
        found = []
        while (reply := self._reader.gets()) is not False:
            found.append(reply)
        return found

    def read(self, service: Service, count: int) -> list[object]:
        """The next ``count`` replies."""
        found = self.replies()
        while len(found) < count:
            service.engine.poll(1)
            found += self.replies()
        return found


def begin(service: Service, *requests: tuple[bytes, ...]) -> Talk:
    """Return a client that has said EXEC for ``requests``, which have not begun to run."""
    client = Talk(service)
    data = b"".join(request(*words) for words in [(b"MULTI",), *requests])
    sent = memoryview(data)
    while sent:
        try:
            sent = sent[client.sock.send(sent) :]
        except BlockingIOError:
            service.settle()
    queued = client.read(service, 1 + len(requests))
    assert queued == [b"OK", *[b"QUEUED"] * len(requests)]
    client.send(b"EXEC")
    return client


def run_some(service: Service) -> None:
    """Take turns until the group has begun to change something."""
    node = service.engine.node
    while not node.held():
        assert service.engine.poll(1)
    assert node.batches.exclusive


def add(queue: bytes) -> tuple[bytes, ...]:
    return (b"ADDJOB", queue, b"body", b"0", b"REPLICATE", b"1")


def test_pings_are_answered_while_it_runs_and_all_else_waits(service: Service) -> None:
    pinging, looking, adding = (Talk(service) for _ in range(3))
    group = begin(service, *[add(b"q")] * COMMANDS, (b"QLEN", b"q"))
    run_some(service)
    looking.send(b"QLEN", b"q")
    adding.send(*add(b"q"))
    pinging.send(b"PING")
    assert service.engine.poll(1)
    assert service.engine.node.batches.exclusive
    assert pinging.replies() == [b"PONG"]
    assert looking.replies() == adding.replies() == group.replies() == []
    service.settle()
    (replies,) = group.replies()
    assert isinstance(replies, list)
    assert replies[-1] == COMMANDS
    (length,) = looking.replies()
    assert length in (COMMANDS, COMMANDS + 1)
    assert len(adding.replies()) == 1
    assert not service.engine.hold.on
    assert service.engine.node.batches.left == 0


def test_whoever_pinged_before_it_began_does_not_wait_for_it(service: Service) -> None:
    pinging = Talk(service)
    group = begin(service, *[add(b"q")] * COMMANDS)
    pinging.send(b"PING")
    run_some(service)
    assert pinging.replies() == [b"PONG"]
    service.settle()
    assert len(group.replies()) == 1


def test_what_many_ids_do_belongs_to_it(service: Service) -> None:
    adding = Talk(service)
    ids: list[bytes] = []
    for _ in range(10):
        adding.sock.send(request(*add(b"q")) * 100)
        ids += adding.read(service, 100)  # type: ignore[arg-type]
    scan = (b"JSCAN", b"BUSYLOOP")
    group = begin(service, (b"ACKJOB", *ids), (b"QLEN", b"q"), *[add(b"q")] * 500, scan)
    node = service.engine.node
    while node.held() == len(ids):
        assert service.engine.poll(1)
    assert node.batches.exclusive
    pinging = Talk(service)
    looking = Talk(service)
    pinging.send(b"PING")
    looking.send(b"JSCAN", b"BUSYLOOP")
    turns = 0
    while node.batches.exclusive:
        assert service.engine.poll(1)
        turns += 1
        if turns == 1:
            assert pinging.replies() == [b"PONG"]
    assert turns > 500 // 100
    service.settle()
    (replies,) = group.replies()
    assert isinstance(replies, list)
    assert replies[:2] == [1_000, 0]
    assert sorted(replies[-1][1]) == sorted(replies[2:-1])
    ((_, seen),) = looking.replies()  # type: ignore[misc]
    assert sorted(seen) == sorted(replies[2:-1])


def test_what_waits_for_jobs_gets_them_after_the_last_command(service: Service) -> None:
    waiting = Talk(service)
    waiting.send(b"GETJOB", b"FROM", b"q")
    service.settle()
    group = begin(service, *[add(b"q")] * COMMANDS, (b"QLEN", b"q"))
    run_some(service)
    pinging = Talk(service)
    pinging.send(b"PING")
    assert pinging.read(service, 1) == [b"PONG"]
    assert service.engine.node.batches.exclusive
    assert waiting.replies() == []
    assert service.engine.node.queues.by_name[b"q"].length == service.engine.node.held()
    service.settle()
    assert len(waiting.replies()) == 1
    (replies,) = group.replies()
    assert isinstance(replies, list)
    assert replies[-1] == COMMANDS


def test_a_stop_ends_it_first(service: Service) -> None:
    group = begin(service, *[add(b"q")] * COMMANDS)
    run_some(service)
    service.engine.halt()
    assert service.engine.node.held() == COMMANDS
    (replies,) = group.replies()
    assert isinstance(replies, list)
    assert len(replies) == COMMANDS


async def test_tasks_of_the_file_wait_for_its_end(tmp_path: Path) -> None:
    """Otherwise they would write a part of its records, or end the hold."""
    desk = Desk(make_node(), aof=str(tmp_path))
    node, engine = desk.machine, desk.engine
    file = desk.persistence
    assert file is not None
    (sock,) = desk.socks
    sock.send(request(b"MULTI") + request(*add(b"q")) * SHORT + request(b"EXEC"))
    node.batches.size = 10
    while not node.batches.exclusive:
        assert engine.poll(1)
    seen = []

    async def look() -> None:
        await file.file.until_stored()
        seen.append((node.held(), engine.hold.on, node.batches.exclusive))

    with trio.fail_after(HANG_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            await trio.testing.wait_all_tasks_blocked()
            assert seen == []
            while node.batches.exclusive:
                assert engine.poll(1)
    assert seen == [(SHORT, False, False)]
    desk.close()


def test_it_runs_to_its_end_when_its_client_is_gone(service: Service) -> None:
    group = begin(service, *[add(b"q")] * COMMANDS)
    run_some(service)
    group.sock.close()
    service.settle()
    assert service.engine.node.held() == COMMANDS
    assert not service.engine.hold.on
    other = Talk(service)
    other.send(b"QLEN", b"q")
    service.settle()
    assert other.replies() == [COMMANDS]


def test_nothing_is_done_for_a_client_that_is_gone(service: Service) -> None:
    node = service.engine.node
    adding = Talk(service)
    adding.sock.send(request(*add(b"jobs")) * 3)
    adding.read(service, 3)
    group = begin(
        service,
        *[add(b"q")] * COMMANDS,
        (b"HELLO", b"3"),
        (b"CONSUME", b"jobs", b"CREDIT", b"1"),
        (b"AUTH", b"default", b""),
        (b"GETJOB", b"FROM", b"jobs"),
        (b"JSCAN", b"BUSYLOOP"),
        add(b"q"),
    )
    while node.held() == 3:
        assert service.engine.poll(1)
    assert node.batches.exclusive
    group.abort()
    scans = node.commands[b"jscan"].calls
    service.settle()
    assert node.held() == 3 + COMMANDS + 1
    assert node.queues.by_name[b"jobs"].length == 3
    assert node.consumers.by_client == {}
    assert node.commands[b"jscan"].calls == scans
    assert not service.engine.hold.on
    assert node.users.default.use.connections == len(service.engine.clients.connections)


def test_a_scan_for_a_client_that_is_gone_ends(service: Service) -> None:
    node = service.engine.node
    node.batches.size = 5
    adding = Talk(service)
    for _ in range(5):
        adding.sock.send(request(*add(b"q")) * 100)
        adding.read(service, 100)
    group = begin(service, *[(b"JSCAN", b"BUSYLOOP")] * SHORT, add(b"q"))
    while not node.batches.exclusive or node.batches.waiting[0].current is None:
        assert service.engine.poll(1)
    group.abort()
    turns = 0
    while node.batches.waiting:
        assert service.engine.poll(1)
        turns += 1
    assert turns < SHORT
    assert node.held() == 501


def test_scans_fail_when_those_of_the_group_have_looked_at_too_much(service: Service) -> None:
    """So nobody keeps a node from all else for long."""
    node = service.engine.node
    node.batches.size = 5
    node.batches.most_read = 2_000
    adding = Talk(service)
    for _ in range(5):
        adding.sock.send(request(*add(b"q")) * 100)
        adding.read(service, 100)
    look = (b"JSCAN", b"BUSYLOOP", b"STATE", b"acked")  # at 500 jobs
    tell = (b"JSCAN", b"BUSYLOOP")  # and about each
    for requests, whole in (([look] * 9, 4), ([tell, *[look] * 9], 2), ([look] * 3 + [tell], 4)):
        group = begin(service, *requests, *[(b"QLEN", b"q")] * SHORT)
        service.settle()
        (replies,) = group.replies()
        assert isinstance(replies, list)
        assert len(replies) == len(requests) + SHORT
        assert replies[len(requests) :] == [500] * SHORT
        for reply in replies[:whole]:
            assert isinstance(reply, list)
        assert {str(reply)[:40] for reply in replies[whole : len(requests)]} <= {
            "ERR the commands of the group look at to"
        }
    assert node.batches.left == 0
    adding.send(*look)  # outside of groups
    assert adding.read(service, 1) == [[b"0", []]]


def test_a_short_group_of_one_word_more_than_others_still_has_its_replies(
    service: Service,
) -> None:
    for count in (1, 30, 60, 70, 200):
        group = begin(service, *[(b"QLEN", b"q")] * count)
        service.settle()
        assert group.replies() == [[0] * count]


class SlowClock:
    """A clock by which each command takes a ms."""

    def __init__(self) -> None:
        self.time = 0

    def __call__(self) -> int:
        self.time += MS
        return self.time


def test_after_some_commands_that_took_long_others_are_served() -> None:
    """However many clients send them; and those that say little come first."""
    service = Service()
    small = Talk(service)
    service.engine.node.clock = lambda: 0
    for _ in range(10):  # so it is known to say little
        small.send(b"PING")
        assert small.read(service, 1) == [b"PONG"]
    service.engine.node.clock = SlowClock()
    crowd = [Talk(service) for _ in range(50)]
    for client in crowd:
        client.sock.send(request(b"JSCAN", b"0") * 3)
    most = REPLIES_A_TURN // (LONG_COSTS * MS) + 1
    answered = 0
    for turn in range(20):
        assert service.engine.poll(1)
        before, answered = answered, answered + sum(len(client.replies()) for client in crowd)
        assert answered - before <= 2 * most
        if turn == 10:
            small.send(b"PING")
        if turn == 11:
            assert small.replies() == [b"PONG"]
    service.settle()
    assert answered + sum(len(client.replies()) for client in crowd) == 150
    service.close()
