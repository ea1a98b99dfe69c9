"""Budgets of users that any server keeps: connections, replies that wait, and the rate of commands.
The clock is moved by hand."""

import select
import socket
from collections.abc import Iterator

import pytest

from disque_trio.form import form
from disque_trio.respserver.pace import Pace
from tests.support.node_bench import Bench
from tools.bench.inprocess import Desk, make_broker, make_node, request

MB = 1024 * 1024
SHOP = ("ACL", "SETUSER", "shop", "on", ">pw", "~*", "+@all")
LOGIN = ("AUTH", "shop", "pw")


@pytest.fixture(params=["node", "bananaq"])
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    machine = make_node() if request.param == "node" else make_broker()
    desk = Desk(machine, clients=5)
    yield desk
    desk.close()


@pytest.fixture
def node_desk() -> Iterator[Desk]:
    desk = Desk(make_node(), clients=5)
    yield desk
    desk.close()


def declare(desk: Desk, *rules: str) -> None:
    """Client 4 gives the user shop ``rules``, and those before it log in."""
    assert say(desk, 4, " ".join((*SHOP, *rules))) == b"+OK\r\n"
    for who in range(4):
        assert say(desk, who, " ".join(LOGIN)) == b"+OK\r\n"


def say(desk: Desk, who: int, line: str) -> bytes:
    """What client ``who`` has got when it has sent ``line``, and nobody is behind any more."""
    desk.socks[who].send(request(*line.encode().split()))
    return turn(desk, who)


def turn(desk: Desk, who: int) -> bytes:
    desk.engine.turn([(desk.connections[who].fd, select.EPOLLIN)])
    catch_up(desk)
    return drain(desk.socks[who])


def catch_up(desk: Desk) -> None:
    while desk.engine.clients.behind:
        desk.engine.turn([])


def drain(sock: socket.socket) -> bytes:
    parts = []
    try:
        while data := sock.recv(MB):
            parts.append(data)
    except BlockingIOError:
        pass
    return b"".join(parts)


def served_after(desk: Desk, who: int, seconds: float) -> int:
    """How many replies to PINGs client ``who`` gets in that time."""
    found = 0
    for _ in range(round(seconds * 10)):
        desk.clock.time += 100
        desk.engine.cron()
        catch_up(desk)
        found += drain(desk.socks[who]).count(b"+PONG")
    return found


# ---- connections --------------------------------------------------------------------------------


def test_a_login_beyond_the_connections_is_refused(bench: Bench) -> None:
    bench(*SHOP, "%maxconnections=2")
    first, second, third = bench.client(), bench.client(), bench.client()
    assert bench.ask(first, *LOGIN) == b"OK"
    assert bench.ask(second, "HELLO", 3, *LOGIN)
    why = "LIMIT user shop may have 2 connections (%maxconnections), 2 are open"
    assert bench.error_of(third, *LOGIN) == why
    assert bench.error_of(third, "HELLO", 2, *LOGIN) == why
    assert bench.ask(third, "ACL", "WHOAMI") == b"default"
    assert bench.ask(first, *LOGIN) == b"OK"  # it is one of them


@pytest.mark.parametrize("end", ["disconnects", "RESET", "AUTH"])
def test_a_connection_that_ends_makes_room(bench: Bench, end: str) -> None:
    bench(*SHOP, "%maxconnections=1")
    bench("ACL", "SETUSER", "other", "on", ">pw", "+@all")
    first, second = bench.client(), bench.client()
    bench.ask(first, *LOGIN)
    if end == "disconnects":
        bench.disconnect(first)
    else:
        bench.ask(first, *((end, "other", "pw") if end == "AUTH" else (end,)))
    assert bench.ask(second, *LOGIN) == b"OK"
    third = bench.client()
    assert bench.error_of(third, *LOGIN).startswith("LIMIT")


def test_connections_that_are_there_stay_when_the_limit_is_lowered(bench: Bench) -> None:
    bench(*SHOP)
    clients = [bench.client() for _ in range(3)]
    for client in clients:
        bench.ask(client, *LOGIN)
    bench("ACL", "SETUSER", "shop", "%maxconnections=1")
    assert [bench.ask(client, "PING") for client in clients] == [b"PONG"] * 3
    assert bench.host.closed == []
    assert bench.error_of(bench.client(), *LOGIN).endswith("(%maxconnections), 3 are open")


def test_a_deleted_user_leaves_no_connections_behind(bench: Bench) -> None:
    bench(*SHOP, "%maxconnections=1")
    bench.ask(bench.client(), *LOGIN)
    bench("ACL", "DELUSER", "shop")
    bench(*SHOP, "%maxconnections=1")
    assert bench.ask(bench.client(), *LOGIN) == b"OK"


def test_a_client_of_the_default_user_beyond_its_connections_has_to_log_in(bench: Bench) -> None:
    bench("ACL", "SETUSER", "default", "%maxconnections=2")
    bench(*SHOP)
    there, new = bench.client(), bench.client()
    assert bench.ask(there, "PING") == b"PONG"
    assert bench.error_of(new, "PING").startswith("LIMIT user default may have 2 connections")
    bench("ACL", "SETUSER", "other", "on")  # users have changed
    assert bench.error_of(new, "PING").startswith("LIMIT")
    assert bench.ask(new, *LOGIN) == b"OK"
    assert bench.ask(new, "PING") == b"PONG"
    assert bench.ask(new, "RESET") == b"RESET"
    assert bench.error_of(new, "PING").startswith("LIMIT")
    bench.disconnect(there)
    newest = bench.client()
    assert bench.ask(newest, "PING") == b"PONG"
    assert bench.error_of(new, "PING").startswith("LIMIT")
    bench.disconnect(newest)
    assert bench.ask(new, "PING") == b"PONG"  # there is room now
    assert bench.error_of(bench.client(), "PING").startswith("LIMIT")


def test_the_host_hears_of_a_limit_once_a_minute(bench: Bench) -> None:
    bench(*SHOP, "%maxconnections=1")
    bench.ask(bench.client(), *LOGIN)
    other = bench.client()
    for _ in range(3):
        bench.error_of(other, *LOGIN)
    assert len(bench.host.limits) == 1
    bench.now += 59_999
    bench.error_of(other, *LOGIN)
    assert len(bench.host.limits) == 1
    bench.now += 1
    bench.error_of(other, *LOGIN)
    assert len(bench.host.limits) == 2


# ---- the rate -----------------------------------------------------------------------------------


def test_a_pace_gives_a_second_at_once_and_then_what_time_brings() -> None:
    pace = Pace()
    assert pace.left(5, 1_000) == 5
    pace.spend(5)
    assert pace.left(5, 1_000) == 0
    assert pace.left(5, 1_199) == 0
    assert pace.left(5, 1_200) == 1
    assert pace.left(5, 2_000) == 5
    assert pace.left(5, 900_000) == 5
    pace.spend(15)  # a long command
    assert pace.left(5, 902_000) == 0
    assert pace.left(5, 902_200) == 1
    pace.spend(1)
    assert pace.left(5, 1_000) == 0  # the clock was set back
    assert pace.left(5, 1_200) == 1


def test_clients_of_a_user_are_served_as_fast_as_its_rate_says(desk: Desk) -> None:
    declare(desk, "%rate=50/s")
    served_after(desk, 0, 1)
    desk.socks[0].send(request(b"PING") * 130)
    assert turn(desk, 0).count(b"+PONG") == 50
    assert served_after(desk, 0, 0.5) == 25
    assert served_after(desk, 0, 1) == 50
    assert served_after(desk, 0, 1) == 5
    assert say(desk, 0, "PING") == b"+PONG\r\n"


def test_what_comes_with_the_login_is_paced_as_well(desk: Desk) -> None:
    assert say(desk, 4, " ".join((*SHOP, "%rate=5/s"))) == b"+OK\r\n"
    served_after(desk, 0, 1)
    login = request(*[word.encode() for word in LOGIN])
    for who in range(3):
        desk.socks[who].send(login + request(b"PING") * 20)
    assert sum(turn(desk, who).count(b"+PONG") for who in range(3)) == 5


def test_strangers_use_nothing_of_the_rate_of_the_default_user(desk: Desk) -> None:
    served_after(desk, 4, 1)
    assert say(desk, 4, " ".join(SHOP)) == b"+OK\r\n"
    assert say(desk, 4, " ".join(LOGIN)) == b"+OK\r\n"
    assert say(desk, 4, "ACL SETUSER default >secret %rate=5/s") == b"+OK\r\n"
    for who in range(3):
        assert say(desk, who, "RESET") == b"+RESET\r\n"
        desk.socks[who].send(request(b"PING") * 50)
        assert turn(desk, who).count(b"-NOAUTH") == 50
    assert say(desk, 3, " ".join(LOGIN)) == b"+OK\r\n"
    assert say(desk, 3, "PING") == b"+PONG\r\n"


def test_others_do_not_wait_for_a_user_with_a_rate(desk: Desk) -> None:
    declare(desk, "%rate=10/s")
    served_after(desk, 0, 1)
    desk.socks[0].send(request(b"PING") * 1000)
    turn(desk, 0)
    for _ in range(20):
        desk.socks[4].send(request(b"PING") * 50)
        assert turn(desk, 4).count(b"+PONG") == 50
    assert drain(desk.socks[0]) == b""


def test_one_who_has_to_wait_is_not_read_from(desk: Desk) -> None:
    declare(desk, "%rate=10/s")
    for _ in range(20):
        desk.socks[0].send(request(b"PING") * 100)
        turn(desk, 0)
    assert desk.connections[0].reading_paused
    assert len(desk.connections[0].backlog) <= 100
    desk.machine.users.set(b"shop", [b"nolimits"])
    assert served_after(desk, 0, 0.1) + turn(desk, 0).count(b"+PONG") > 0
    assert not desk.connections[0].reading_paused


def test_all_clients_of_a_user_have_their_turn(desk: Desk) -> None:
    declare(desk, "%rate=10/s")
    served_after(desk, 0, 1)
    for who in range(3):
        desk.socks[who].send(request(b"PING") * 100)
        turn(desk, who)
    assert len(desk.engine.clients.slowed) == 3
    found = [0, 0, 0]
    for _ in range(60):
        for who in range(3):
            found[who] += served_after(desk, who, 0.1)
    assert sum(found) == 180
    assert min(found) > 50


@pytest.mark.skipif(form() != "pure Python", reason="methods of compiled classes stay")
@pytest.mark.parametrize("rate", [100, 1000])
def test_a_turn_looks_at_few_of_the_clients_that_wait(
    rate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 300
    desk = Desk(make_node(), clients=count)
    desk.machine.users.set(b"shop", [b"on", b"nopass", b"~*", b"+@all", b"%%rate=%d" % rate])
    events = []
    for who, connection in enumerate(desk.connections):
        connection.client.log_in(desk.machine.users.by_name[b"shop"])
        desk.socks[who].send(request(b"PING") * 4)
        events.append((connection.fd, select.EPOLLIN))
    desk.clock.time += 1_000
    desk.engine.turn(events)
    looks = 0
    left = Pace.left

    def look(self: Pace, rate: int, now: int) -> int:
        nonlocal looks
        looks += 1
        return left(self, rate, now)

    monkeypatch.setattr(Pace, "left", look)
    most = 0
    found = [0] * count
    for _ in range(60 * 1_000 // rate):
        looks = 0
        desk.clock.time += 20
        desk.engine.turn([])
        most = max(most, looks)
        while desk.engine.clients.behind and rate == 100:
            desk.engine.turn([])
    assert most < 2 * count / 3
    for _ in range(100):
        served = [drain(sock).count(b"+PONG") for sock in desk.socks]
        found = [before + more for before, more in zip(found, served, strict=True)]
        for _ in range(50):
            desk.clock.time += 20
            desk.engine.turn([])
    assert found == [4] * count
    desk.close()


def test_in_one_turn_a_user_gets_what_its_rate_gives_in_a_millisecond(desk: Desk) -> None:
    declare(desk, "%rate=3000/s")
    served_after(desk, 0, 1)
    events = []
    for who in range(3):
        desk.socks[who].send(request(b"PING") * 10)
        events.append((desk.connections[who].fd, select.EPOLLIN))
    found = [0, 0, 0]
    for number in range(10):
        desk.engine.turn(events if not number else [])
        now = [drain(desk.socks[who]).count(b"+PONG") for who in range(3)]
        assert sum(now) == 3
        found = [before + more for before, more in zip(found, now, strict=True)]
    assert found == [10, 10, 10]


def test_a_slow_command_counts_for_more(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(desk, "%rate=10/s")
    served_after(desk, 0, 1)
    times = iter(range(0, 10**12, 2_500_000))  # ns
    monkeypatch.setattr(desk.machine, "clock", lambda: next(times))
    desk.socks[0].send(request(b"PING") * 10)
    assert turn(desk, 0).count(b"+PONG") == 2


def test_a_long_command_counts_for_more(desk: Desk) -> None:
    declare(desk, "%rate=10/s")
    served_after(desk, 0, 1)
    assert b"-ERR" in say(desk, 0, "COMMAND " + "x " * 2_000)
    assert say(desk, 0, "PING") == b""
    assert served_after(desk, 0, 1.0) == 0
    assert served_after(desk, 0, 0.3) == 1


def test_slices_count_for_more(node_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = node_desk
    declare(desk, "%rate=10/s")
    served_after(desk, 0, 1)
    times = iter(range(0, 10**12, 2_500_000))  # ns
    monkeypatch.setattr(desk.machine, "clock", lambda: next(times))
    id = say(desk, 4, "ADDJOB q body 0")[1:-2].decode()
    assert b":1" in say(desk, 0, "DELJOB" + f" {id}" * 1_000) + finish(desk, 0)
    assert say(desk, 0, "PING") == b""
    assert served_after(desk, 0, 3) == 0
    assert served_after(desk, 0, 10) == 1


def finish(desk: Desk, who: int) -> bytes:
    """Read all that client ``who`` sent, and run all slices; what it gets."""
    for _ in range(50):
        desk.engine.turn([(desk.connections[who].fd, select.EPOLLIN)])
    assert not desk.machine.batches.waiting
    return drain(desk.socks[who])


def test_a_job_for_a_topic_counts_once_for_each_queue(node_desk: Desk) -> None:
    desk = node_desk
    for number in range(40):
        assert say(desk, 4, f"BIND news q{number}") == b"+OK\r\n"
    declare(desk, "%rate=10/s")
    served_after(desk, 0, 1)
    assert say(desk, 0, "ADDJOB @news body 0").startswith(b"*40")
    assert say(desk, 0, "PING") == b""
    assert served_after(desk, 0, 2.9) == 0
    assert served_after(desk, 0, 0.3) == 1


def test_one_who_goes_while_it_waits_is_forgotten(desk: Desk) -> None:
    declare(desk, "%rate=10/s")
    desk.socks[0].send(request(b"PING") * 100)
    turn(desk, 0)
    assert len(desk.engine.clients.slowed) == 1
    desk.engine.clients.close(desk.connections[0])
    assert not desk.engine.clients.slowed
    assert served_after(desk, 1, 0.2) == 0


def test_a_waiting_client_is_served_when_a_job_comes(node_desk: Desk) -> None:
    desk = node_desk
    declare(desk, "%rate=10/s")
    served_after(desk, 0, 1)
    desk.socks[0].send(request(b"GETJOB", b"FROM", b"q") + request(b"PING") * 30)
    assert turn(desk, 0) == b""
    assert b"D-" in say(desk, 4, "ADDJOB q body 0")
    assert b"D-" in turn(desk, 0)
    assert served_after(desk, 0, 3) + 10 >= 30


# ---- replies that wait --------------------------------------------------------------------------


def alive(desk: Desk) -> list[int]:
    return [index for index, it in enumerate(desk.connections) if not it.closed]


def ask(desk: Desk, who: int, size: int) -> None:
    """Client ``who`` asks for a reply of that many bytes, and does not read it."""
    data = memoryview(request(b"ECHO", bytes(size)))
    while data and not desk.connections[who].closed:
        data = data[desk.socks[who].send(data[:60_000]) :]
        for _ in range(2):
            desk.engine.turn([(desk.connections[who].fd, select.EPOLLIN)])


def test_of_a_user_whose_replies_wait_the_one_with_the_most_goes(desk: Desk) -> None:
    declare(desk, "%maxoutput=21mb")
    for who, size in ((0, 8), (1, 9), (2, 6)):
        ask(desk, who, size * MB)
    ask(desk, 4, 15 * MB)  # another user
    assert alive(desk) in ([0, 2, 3, 4], [0, 1, 2, 3, 4])
    ask(desk, 3, 6 * MB)
    assert alive(desk) == [0, 2, 3, 4]
    assert desk.machine.users.by_name[b"shop"].use.closed == 1


def test_replies_count_for_the_user_who_is_logged_in(desk: Desk) -> None:
    declare(desk, "%maxoutput=20mb")
    ask(desk, 0, 5 * MB)
    user = desk.machine.users.by_name[b"shop"]
    assert desk.engine.clients.close_queue.by_user[user].total > 3 * MB
    while desk.connections[0].unsent:
        drain(desk.socks[0])
        desk.engine.clients.write_rest(desk.connections[0])
    assert not desk.engine.clients.close_queue.by_user
    ask(desk, 0, 5 * MB)
    desk.engine.clients.close(desk.connections[0])
    assert not desk.engine.clients.close_queue.by_user


def change(desk: Desk, *rules: str) -> None:
    """Apply ``rules`` to the user shop, whose clients 0 to 3 are."""
    user = desk.machine.users.by_name[b"shop"]
    user.set([rule.encode() for rule in rules])
    for connection in desk.connections[:4]:
        connection.client.log_in(user)
    desk.engine.clients.users_changed()
    desk.engine.turn([])


def test_a_limit_for_replies_is_about_those_that_wait_already(desk: Desk) -> None:
    declare(desk)
    for who, size in ((0, 8), (1, 9), (2, 6)):
        ask(desk, who, size * MB)
    change(desk, "%maxoutput=30mb")
    assert alive(desk) == [0, 1, 2, 3, 4]
    change(desk, "%maxoutput=15mb")
    assert alive(desk) == [0, 2, 3, 4]
    change(desk, "%rate=0", "nolimits")
    assert not desk.engine.clients.close_queue.by_user
    assert alive(desk) == [0, 2, 3, 4]
