"""The memory of all clients together: counted as it changes, and bounded."""

import select
import socket
from collections.abc import Iterator

import pytest

from disque_trio.config.memory_limit import MemoryLimit
from disque_trio.respserver.io.connection import Connection
from tests.support.node_bench import START
from tools.bench.inprocess import Desk, make_broker, make_node, request

MB = 1024 * 1024
HALF = b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % (100 * MB)


@pytest.fixture(params=["node", "bananaq"])
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    machine = make_node() if request.param == "node" else make_broker()
    desk = Desk(machine, clients=5)
    yield desk
    desk.close()


@pytest.fixture
def node_desk() -> Iterator[Desk]:
    desk = Desk(make_node(), clients=3)
    yield desk
    desk.close()


def limit(desk: Desk, size: int) -> None:
    desk.engine.config.maxmemory_clients = MemoryLimit(size)
    desk.engine.apply(["maxmemory-clients"])


def say(desk: Desk, who: int, data: bytes) -> None:
    """Have client ``who`` send ``data``, as fast as the turns take it."""
    view = memoryview(data)
    while view and not desk.connections[who].closed:
        view = view[desk.socks[who].send(view[:60_000]) :]
        # A turn reads little from a client that sent little before.
        turn(desk, who)
        turn(desk, who)


def turn(desk: Desk, *who: int) -> None:
    desk.engine.turn([(desk.connections[index].fd, select.EPOLLIN) for index in who])


def held(desk: Desk) -> int:
    return desk.engine.clients.close_queue.holdings.total


def alive(desk: Desk) -> list[int]:
    return [index for index, it in enumerate(desk.connections) if not it.closed]


def drain(sock: socket.socket) -> bytes:
    parts = []
    try:
        while data := sock.recv(1 << 20):
            parts.append(data)
    except BlockingIOError:
        pass
    return b"".join(parts)


def test_half_a_request_is_counted_as_it_grows_and_not_when_it_is_whole(desk: Desk) -> None:
    say(desk, 0, b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % MB)
    for _ in range(10):
        before = held(desk)
        say(desk, 0, bytes(100_000))
        assert held(desk) == before + 100_000
    say(desk, 0, bytes(MB - 1_000_000) + b"\r\n")
    while desk.connections[0].unsent:
        drain(desk.socks[0])
        desk.engine.clients.write_rest(desk.connections[0])
    assert held(desk) == 0


def test_many_tiny_arguments_count_for_what_they_take(desk: Desk) -> None:
    say(desk, 0, b"*100000\r\n" + b"$2\r\nab\r\n" * 50_000)
    assert held(desk) > 50_000 * 40


def test_half_a_request_behind_whole_ones_is_counted(desk: Desk) -> None:
    say(desk, 0, request(b"PING") * 3 + HALF + bytes(1000))
    assert held(desk) >= 1000


def test_what_waits_behind_a_blocked_client_is_counted_until_it_is_served(node_desk: Desk) -> None:
    desk = node_desk
    say(desk, 0, request(b"GETJOB", b"FROM", b"q"))
    assert held(desk) == 0
    say(desk, 0, request(b"ECHO", bytes(10_000)) * 20)
    assert held(desk) > 200_000
    say(desk, 1, request(b"ADDJOB", b"q", b"body", b"0"))
    turn(desk)
    assert held(desk) == 0
    assert desk.connections[0].backlog_size == 0


def test_replies_that_are_not_read_are_counted_until_they_are(desk: Desk) -> None:
    say(desk, 0, request(b"ECHO", bytes(5 * MB)))
    connection = desk.connections[0]
    assert held(desk) == len(connection.unsent) > MB
    while connection.unsent:
        drain(desk.socks[0])
        desk.engine.clients.write_rest(connection)
        assert held(desk) == len(connection.unsent)


def test_a_client_that_goes_takes_its_share_along(desk: Desk) -> None:
    say(desk, 0, HALF + bytes(MB))
    say(desk, 1, HALF + bytes(MB))
    before = held(desk)
    desk.socks[0].close()
    turn(desk, 0)
    assert 0 < held(desk) < before


def test_the_clients_that_hold_most_are_dropped_until_the_rest_fits(desk: Desk) -> None:
    limit(desk, 10 * MB)
    for index, size in enumerate((1, 4, 3, 1)):
        say(desk, index, HALF + bytes(size * MB - 1000))
    assert alive(desk) == [0, 1, 2, 3, 4]
    say(desk, 0, bytes(2 * MB))
    assert alive(desk) == [0, 2, 3, 4]
    assert desk.engine.stats.evicted_clients == 1
    assert held(desk) < 10 * MB
    say(desk, 4, request(b"PING"))
    assert drain(desk.socks[4]) == b"+PONG\r\n"
    assert drain_end(desk.socks[1])


def drain_end(sock: socket.socket) -> bool:
    """Return whether the connection has ended."""
    try:
        while sock.recv(1 << 20):
            pass
    except ConnectionResetError:
        pass
    except BlockingIOError:
        return False
    return True


def test_a_lower_limit_holds_at_once_for_those_that_are_there(desk: Desk) -> None:
    for index in (0, 1):
        say(desk, index, HALF + bytes((index + 1) * MB))
    limit(desk, MB)
    turn(desk)
    assert alive(desk) == [2, 3, 4]


def test_a_percentage_follows_maxmemory(desk: Desk) -> None:
    config = desk.engine.config
    config.maxmemory_clients = MemoryLimit(percent=10)
    config.maxmemory = 0
    desk.engine.apply(["maxmemory", "maxmemory-clients"])
    say(desk, 0, HALF + bytes(2 * MB))
    assert alive(desk) == [0, 1, 2, 3, 4]
    config.maxmemory = 40 * MB
    desk.engine.apply(["maxmemory"])
    say(desk, 1, HALF + bytes(MB))
    assert alive(desk) == [0, 1, 2, 3, 4]
    say(desk, 1, bytes(2 * MB))
    assert alive(desk) == [0, 2, 3, 4]


def test_a_lone_client_may_send_a_batch_however_small_maxmemory_is(node_desk: Desk) -> None:
    desk = node_desk
    desk.engine.config.maxmemory = MB
    desk.engine.apply(["maxmemory"])
    say(desk, 0, request(b"GETJOB", b"FROM", b"q"))
    say(desk, 0, request(b"ECHO", bytes(10_000)) * 100)
    say(desk, 1, request(b"MULTI") + request(b"ECHO", bytes(10_000)) * 200)
    say(desk, 2, HALF + bytes(5 * MB))
    assert alive(desk) == [0, 1, 2]


def test_a_client_that_is_not_to_be_evicted_stays_and_says_so(desk: Desk) -> None:
    limit(desk, 3 * MB)
    say(desk, 0, request(b"CLIENT", b"NO-EVICT", b"ON"))
    say(desk, 0, HALF + bytes(5 * MB))
    say(desk, 1, HALF + bytes(MB))
    assert alive(desk) == [0, 2, 3, 4]
    assert " flags=Ue " in desk.connections[0].describe(START)
    say(desk, 2, request(b"CLIENT", b"NO-EVICT", b"ON"))
    say(desk, 2, request(b"CLIENT", b"NO-EVICT", b"OFF"))
    say(desk, 2, HALF + bytes(MB))
    assert alive(desk) == [0, 3, 4]


def test_who_is_spared_no_more_goes_soon(desk: Desk) -> None:
    say(desk, 0, HALF + bytes(5 * MB))
    client = desk.connections[0].client
    client.no_evict = True
    limit(desk, 3 * MB)
    turn(desk)
    assert alive(desk) == [0, 1, 2, 3, 4]
    client.no_evict = False
    desk.engine.cron()
    assert alive(desk) == [1, 2, 3, 4]


def test_replies_that_nobody_reads_make_a_client_go(desk: Desk) -> None:
    limit(desk, 3 * MB)
    say(desk, 0, HALF + bytes(MB))
    say(desk, 1, request(b"ECHO", bytes(5 * MB)))
    turn(desk)
    assert alive(desk) == [0, 2, 3, 4]


def test_the_list_of_clients_shows_what_each_holds(desk: Desk) -> None:
    say(desk, 0, HALF + bytes(MB))
    say(desk, 1, request(b"ECHO", bytes(5 * MB)))
    fields = [fields_of(connection) for connection in desk.connections]
    assert int(fields[0]["tot-mem"]) >= int(fields[0]["qbuf"]) > MB
    assert (fields[0]["omem"], fields[1]["qbuf"]) == ("0", "0")
    assert int(fields[1]["tot-mem"]) >= int(fields[1]["omem"]) > MB
    assert int(fields[2]["qbuf"]) == int(fields[2]["omem"]) == 0
    assert sum(int(it["tot-mem"]) for it in fields) == held(desk)


def fields_of(connection: Connection) -> dict[str, str]:
    return dict(field.split("=", 1) for field in connection.describe(START).split(" "))


def unknown_ids(count: int) -> list[bytes]:
    return [b"D-12345678-%024d-05a1" % number for number in range(count)]


def test_ids_that_are_not_worked_through_yet_are_counted(node_desk: Desk) -> None:
    desk = node_desk
    say(desk, 0, request(b"ACKJOB", *unknown_ids(2_000)))
    assert held(desk) > 2_000 * 40
    while desk.connections[0].client.in_slices:
        turn(desk)
    assert held(desk) == 0
    assert drain(desk.socks[0]) == b":0\r\n"


def test_clients_that_come_and_go_cannot_have_more_and_more_ids_worked_through(
    node_desk: Desk,
) -> None:
    desk = node_desk
    batches = desk.engine.node.batches
    batches.most_left = 3_000
    for index in range(3):
        say(desk, index, request(b"ACKJOB", *unknown_ids(2_000)))
    assert len(batches.waiting) == 2
    assert len(desk.connections[2].backlog) == 1
    say(desk, 1, request(b"PING"))
    desk.engine.clients.close(desk.connections[0])
    while batches.waiting or desk.connections[2].backlog:
        turn(desk)
    assert drain(desk.socks[1]) == b":0\r\n+PONG\r\n"
    assert drain(desk.socks[2]) == b":0\r\n"


def test_the_commands_of_a_group_are_counted_until_it_ends(node_desk: Desk) -> None:
    for end in (b"EXEC\r\n", b"DISCARD\r\n", b"RESET\r\n", b"NONSENSE\r\n"):
        say(node_desk, 0, b"MULTI\r\n")
        for count in range(1, 4):
            say(node_desk, 0, request(b"ECHO", b"x" * 5000))
            assert 5000 * count < held(node_desk) < 6000 * count
        say(node_desk, 0, end)
        assert held(node_desk) == 0
        say(node_desk, 0, b"DISCARD\r\n")


def test_a_client_that_fills_its_group_beyond_the_limit_is_disconnected(node_desk: Desk) -> None:
    limit(node_desk, MB)
    say(node_desk, 1, b"MULTI\r\n" + request(b"ECHO", b"x" * 1000))
    say(node_desk, 0, b"MULTI\r\n")
    for _ in range(12):
        say(node_desk, 0, request(b"ECHO", b"x" * 100_000))
    assert alive(node_desk) == [1, 2]
    say(node_desk, 1, b"EXEC\r\n")
    assert drain(node_desk.socks[1]).endswith(b"x\r\n")


def test_what_follows_a_group_in_one_piece_is_served_behind_it(node_desk: Desk) -> None:
    say(node_desk, 0, b"PING\r\nMULTI\r\nECHO a\r\nECHO b\r\nEXEC\r\nECHO c\r\n")
    answer = b"+PONG\r\n+OK\r\n" + 2 * b"+QUEUED\r\n" + b"*2\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"
    assert drain(node_desk.socks[0]) == answer


def long_replies(size: int, clients: int, commands: int) -> tuple[Desk, list[int]]:
    """Have ``clients`` each ask for ``commands`` replies of ``size`` bytes at once.

    Return the desk, and the bytes of replies made in each turn until all are served.
    """
    desk = Desk(make_node(), clients=clients)
    desk.engine.config.proto_max_bulk_len = 100 * MB
    ask = request(b"ADDJOB", b"q", bytes(size), b"0")
    for at in range(0, len(ask), 60_000):
        desk.socks[0].send(ask[at : at + 60_000])
        turn(desk, 0)
        turn(desk, 0)
    job = drain(desk.socks[0]).removeprefix(b"+").strip()
    for sock in desk.socks:
        sock.send(request(b"SHOW", job) * commands)
    made: list[int] = []
    stats = desk.engine.stats
    while len(made) < 1000:
        before = stats.output_bytes
        turn(desk, *range(clients))
        made.append(stats.output_bytes - before)
        if sum(made) >= size * clients * commands:
            return desk, made
    raise AssertionError(made)


@pytest.mark.parametrize(("size", "commands"), [(10 * MB, 1), (60_000, 60)], ids=["long", "many"])
def test_a_turn_makes_no_more_replies_than_can_be_looked_at(size: int, commands: int) -> None:
    desk, made = long_replies(size, 16, commands)
    try:
        largest = max(size * commands, MB)
        assert max(made) < 32 * MB + 2 * largest
        # All clients were served, though the first ones kept asking.
        assert all(connection.unsent for connection in desk.connections)
    finally:
        desk.close()


def test_all_get_their_turn_while_some_ask_for_much(node_desk: Desk) -> None:
    desk = node_desk
    serving = desk.engine._serving
    desk.socks[2].send(request(b"PING"))
    for _ in range(4):
        serving.made = 1 << 30  # as if others had got replies in this turn
        turn(desk, 0, 1, 2)
        assert desk.socks[2] not in select.select([desk.socks[2]], [], [], 0)[0]
    turn(desk, 2)
    assert drain(desk.socks[2]) == b"+PONG\r\n"
