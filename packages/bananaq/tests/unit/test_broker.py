"""Waiting clients and late answers, with a clock that the test moves."""

import pytest

from disque_bananaq.commands.table import build_table
from disque_bananaq.core.broker import Broker
from disque_bananaq.core.embedded import EmbeddedStore
from disque_bananaq.core.requests import Request
from disque_bananaq.core.results import Result
from disque_bananaq.core.store import Store
from disque_trio.respserver.client import Client
from disque_trio.respserver.host import Host

START = 1_700_000_000_000
NULL = b"$-1\r\n"


class LateStore(Store):
    """A store that executes everything at once but answers only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.events = EmbeddedStore()
        self.available = self.events.available
        self.late: list[tuple[Request, Result]] = []

    def run(self, request: Request, now: int) -> Result | None:
        self.late.append((request, self.events.run(request, now)))
        return None

    def watch(self, queue: bytes, group: bytes) -> None:
        self.events.watch(queue, group)

    def unwatch(self, queue: bytes, group: bytes) -> None:
        self.events.unwatch(queue, group)

    def enter(self, queue: bytes, group: bytes, consumer: int) -> None:
        self.events.enter(queue, group, consumer)

    def leave(self, queue: bytes, group: bytes, consumer: int) -> None:
        self.events.leave(queue, group, consumer)

    def tick(self, now: int) -> None:
        self.events.tick(now)

    def next_due(self) -> int:
        return self.events.next_due()


class World:
    """A broker and its clients."""

    def __init__(self, late: bool) -> None:
        self.late = LateStore() if late else None
        self.broker = Broker(self.late or EmbeddedStore(), build_table(), Host(), lambda: 0)
        self.now = START
        self.ids = 0

    def client(self) -> Client:
        self.ids += 1
        return Client(self.ids)

    def send(self, client: Client, *words: bytes) -> None:
        """Send a command; its reply may come later."""
        self.broker.command(client, list(words), self.now)

    def answer(self) -> None:
        """Let the store answer until nothing is left."""
        while self.late is not None and self.late.late:
            late, self.late.late = self.late.late, []
            self.late.answers += late
            self.broker.take_answers(self.now)
        self.broker.commit()

    def ask(self, client: Client, *words: bytes) -> bytes:
        """Send a command, let the store answer, and return the replies."""
        self.send(client, *words)
        self.answer()
        return self.replies(client)

    def replies(self, client: Client) -> bytes:
        data = b"".join(client.out)
        client.out.clear()
        return data

    def advance(self, ms: int) -> None:
        """Advance the time; call the broker when it wants to be called."""
        end = self.now + ms
        while (due := self.broker.next_wake()) and due <= end:
            self.now = max(due, self.now)
            self.broker.tick(self.now)
            self.answer()
        self.now = end


def event(reply: bytes) -> tuple[bytes, bytes]:
    """Return the id and the contents in a reply."""
    words = reply.split(b"\r\n")
    assert words[0] == b"*2", reply
    return words[2], words[4]


@pytest.fixture(params=["at once", "late"])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param == "late")


def test_an_event_goes_to_the_client_that_waits_for_it(world: World) -> None:
    waiting, adding = world.client(), world.client()
    assert world.ask(waiting, b"QGET", b"q", b"g", b"BLOCK", b"5") == b""
    assert waiting.blocked
    world.ask(adding, b"QADD", b"q", b"60", b"body")
    assert event(world.replies(waiting))[1] == b"body"
    assert not waiting.blocked


def test_waiting_clients_get_events_in_the_order_of_their_arrival(world: World) -> None:
    waiting = [world.client() for _ in range(3)]
    for client in waiting:
        world.ask(client, b"QGET", b"q", b"g", b"BLOCK", b"5")
    adding = world.client()
    for body in (b"1", b"2"):
        world.ask(adding, b"QADD", b"q", b"60", body)
    got = [world.replies(client) for client in waiting]
    assert [event(reply)[1] for reply in got[:2]] == [b"1", b"2"]
    assert got[2] == b""
    assert waiting[2].blocked


def test_each_waiting_group_gets_the_event(world: World) -> None:
    clients = [world.client() for _ in range(3)]
    for n, client in enumerate(clients):
        world.ask(client, b"QGET", b"q", b"group %d" % n, b"BLOCK", b"5")
    world.ask(world.client(), b"QADD", b"q", b"60", b"body")
    assert [event(world.replies(client))[1] for client in clients] == [b"body"] * 3


def test_the_deadline_counts_from_the_delivery(world: World) -> None:
    waiting, other = world.client(), world.client()
    world.ask(waiting, b"QGET", b"q", b"g", b"EX", b"2", b"BLOCK", b"60")
    world.advance(10_000)
    world.ask(world.client(), b"QADD", b"q", b"60", b"body")
    id, _ = event(world.replies(waiting))
    world.advance(1_500)
    assert world.ask(other, b"QGET", b"q", b"g") == NULL
    assert world.ask(waiting, b"QACK", b"q", b"g", id) == b":1\r\n"


def test_a_wait_ends_with_null(world: World) -> None:
    client = world.client()
    world.ask(client, b"QGET", b"q", b"g", b"BLOCK", b"0.25")
    world.advance(249)
    assert world.replies(client) == b""
    world.advance(2)
    assert world.replies(client) == NULL
    assert not client.blocked


def test_a_waiting_client_gets_an_event_that_was_not_acknowledged(world: World) -> None:
    first, second = world.client(), world.client()
    world.ask(first, b"QADD", b"q", b"60", b"body")
    id, _ = event(world.ask(first, b"QGET", b"q", b"g", b"EX", b"1"))
    world.ask(second, b"QGET", b"q", b"g", b"BLOCK", b"5")
    world.advance(990)
    assert world.replies(second) == b""
    world.advance(110)
    again, body = event(world.replies(second))
    assert (again, body) == (id + b"_2", b"body")
    assert world.ask(first, b"QACK", b"q", b"g", id) == b":0\r\n"
    assert world.ask(second, b"QACK", b"q", b"g", again) == b":1\r\n"


def test_all_listeners_are_notified_of_an_event(world: World) -> None:
    clients = [world.client() for _ in range(3)]
    for client in clients:
        world.ask(client, b"QNOTIFY", b"g", b"5", b"a", b"q", b"b")
    world.ask(world.client(), b"QADD", b"q", b"60", b"body")
    assert [world.replies(client) for client in clients] == [b"$1\r\nq\r\n"] * 3


def test_listeners_are_not_notified_of_an_event_that_a_waiting_client_gets(world: World) -> None:
    taker, listener = world.client(), world.client()
    world.ask(listener, b"QNOTIFY", b"g", b"5", b"q")
    world.ask(taker, b"QGET", b"q", b"g", b"BLOCK", b"5")
    world.ask(world.client(), b"QADD", b"q", b"60", b"body")
    assert event(world.replies(taker))[1] == b"body"
    assert world.replies(listener) == b""
    world.ask(world.client(), b"QADD", b"q", b"60", b"more")
    assert world.replies(listener) == b"$1\r\nq\r\n"


def test_a_notification_without_waiting_reports_existing_events(world: World) -> None:
    client = world.client()
    assert world.ask(client, b"QNOTIFY", b"g", b"0", b"q", b"r") == NULL
    world.ask(client, b"QADD", b"r", b"60", b"body")
    assert world.ask(client, b"QNOTIFY", b"g", b"0", b"q", b"r") == b"$1\r\nr\r\n"
    assert world.ask(client, b"QNOTIFY", b"g", b"0") == NULL
    assert not client.blocked


def test_every_queue_with_an_event_is_eventually_named(world: World) -> None:
    client = world.client()
    for name in (b"a", b"b", b"c"):
        world.ask(client, b"QADD", name, b"60", b"body")
    named = {world.ask(client, b"QNOTIFY", b"g", b"0", b"a", b"b", b"c") for _ in range(6)}
    assert named == {b"$1\r\na\r\n", b"$1\r\nb\r\n", b"$1\r\nc\r\n"}


def test_a_client_may_wait_for_no_queue(world: World) -> None:
    client = world.client()
    assert world.ask(client, b"QNOTIFY", b"g", b"1") == b""
    world.advance(1_001)
    assert world.replies(client) == NULL


def test_a_client_that_disconnects_while_waiting_is_forgotten(world: World) -> None:
    gone, staying = world.client(), world.client()
    for client in (gone, staying):
        world.ask(client, b"QGET", b"q", b"g", b"BLOCK", b"5")
    gone.close = True
    world.broker.forget_client(gone)
    world.ask(world.client(), b"QADD", b"q", b"60", b"body")
    assert event(world.replies(staying))[1] == b"body"
    assert world.broker.blocked_clients == 0


def test_an_event_for_a_disconnected_client_goes_to_the_next() -> None:
    world = World(late=True)
    assert world.late is not None
    gone, staying = world.client(), world.client()
    world.ask(gone, b"QADD", b"q", b"60", b"body")
    world.send(gone, b"QGET", b"q", b"g", b"BLOCK", b"5")
    gone.close = True
    world.broker.forget_client(gone)
    world.answer()
    assert event(world.ask(staying, b"QGET", b"q", b"g"))[1] == b"body"


def test_an_event_that_is_already_on_its_way_beats_the_end_of_the_wait() -> None:
    world = World(late=True)
    client = world.client()
    world.ask(client, b"QADD", b"q", b"60", b"body")
    world.send(client, b"QGET", b"q", b"g", b"EX", b"0", b"BLOCK", b"1")
    world.now += 2_000
    world.broker.tick(world.now)
    assert client.blocked
    world.answer()
    assert event(world.replies(client))[1] == b"body"


def test_replies_come_in_the_order_of_the_requests() -> None:
    world = World(late=True)
    client = world.client()
    world.send(client, b"QADD", b"q", b"60", b"body")
    assert world.broker.may_overlap([b"qget", b"q", b"g"])
    world.send(client, b"QGET", b"q", b"g")
    assert not world.broker.may_overlap([b"QGET", b"q", b"g", b"block", b"1"])
    assert not world.broker.may_overlap([b"QNOTIFY", b"g", b"1", b"q"])
    assert not world.broker.may_overlap([b"PING"])
    late = world.late
    assert late is not None
    add, get = late.late
    late.late = []
    late.answers.append(get)
    world.broker.take_answers(world.now)
    world.broker.commit()
    assert world.replies(client) == b""
    late.answers.append(add)
    world.broker.take_answers(world.now)
    world.broker.commit()
    assert world.replies(client).startswith(b"$33\r\n")
    assert client.in_flight == 0


def test_an_event_whose_client_has_disconnected_is_delivered_again() -> None:
    world = World(late=True)
    gone, other = world.client(), world.client()
    world.ask(gone, b"QADD", b"q", b"60", b"body")
    world.send(gone, b"QGET", b"q", b"g", b"EX", b"50")
    gone.close = True
    world.broker.forget_client(gone)
    world.answer()
    assert event(world.ask(other, b"QGET", b"q", b"g"))[1] == b"body"


def test_too_many_adds_in_the_background_are_refused() -> None:
    world = World(late=True)
    world.broker.background_limit = 2
    client = world.client()
    add = (b"QADD", b"q", b"60", b"body", b"NOBLOCK")
    for _ in range(2):
        world.send(client, *add)
    world.send(client, *add)
    assert world.replies(client) == (
        b"+OK\r\n+OK\r\n-ERR bgQAdd processes all busy and buffer is full\r\n"
    )
    world.answer()
    assert world.ask(client, *add) == b"+OK\r\n"


def test_an_error_of_the_store_is_the_reply_to_waiting_clients() -> None:
    world = World(late=True)
    late = world.late
    assert late is not None
    clients = [world.client() for _ in range(2)]
    world.send(clients[0], b"QGET", b"q", b"g", b"BLOCK", b"5")
    world.send(clients[1], b"QNOTIFY", b"g", b"5", b"q")
    late.late = [(request, Result(error="ERR no Redis")) for request, _ in late.late]
    world.answer()
    for client in clients:
        assert world.replies(client) == b"-ERR no Redis\r\n"
        assert not client.blocked


def test_consumers_are_counted_once_per_connection(world: World) -> None:
    client, other = world.client(), world.client()
    world.ask(client, b"QREGISTER", b"q", b"r")
    world.ask(client, b"QNOTIFY", b"5")
    status = world.ask(other, b"QSTATUS", b"q", b"GROUPS", b"okq")
    assert status.endswith(b"$9\r\nconsumers\r\n:1\r\n")
    world.ask(other, b"QLPUSH", b"q", b"id", b"body")
    assert world.replies(client) == b"$1\r\nq\r\n"
    world.broker.forget_client(client)
    status = world.ask(other, b"QSTATUS", b"q", b"GROUPS", b"okq")
    assert status.endswith(b"$9\r\nconsumers\r\n:0\r\n")


def test_a_reset_connection_is_no_longer_a_consumer(world: World) -> None:
    client = world.client()
    world.ask(client, b"QREGISTER", b"q")
    world.ask(client, b"QADD", b"q", b"60", b"body")
    assert b"consumers\r\n:1" in world.ask(client, b"QSTATUS", b"q")
    assert world.ask(client, b"RESET") == b"+RESET\r\n"
    assert b"consumers" not in world.ask(client, b"QSTATUS", b"q")
    assert world.ask(client, b"QNOTIFY", b"0") == NULL


def test_okq_acknowledges_by_either_id(world: World) -> None:
    client = world.client()
    assert world.ask(client, b"QLPUSH", b"q", b"1_2", b"pushed") == b"+OK\r\n"
    assert world.ask(client, b"QLPUSH", b"q", b"1_2", b"x") == b"-ERR duplicate event 1_2\r\n"
    world.ask(client, b"QADD", b"q", b"60", b"added")
    assert event(world.ask(client, b"QRPOP", b"q")) == (b"1_2", b"pushed")
    id, body = event(world.ask(client, b"QRPOP", b"q"))
    assert body == b"added"
    assert world.ask(client, b"QACK", b"q", b"1_2") == b":1\r\n"
    assert world.ask(client, b"QACK", b"q", id) == b":1\r\n"
    assert world.ask(client, b"QACK", b"q", id) == b":0\r\n"
    assert world.ask(client, b"QLPUSH", b"q", b"1_2", b"again") == b"+OK\r\n"


def test_a_consumer_can_requeue_and_keep_events(world: World) -> None:
    client = world.client()
    world.ask(client, b"QADD", b"q", b"60", b"body")
    id, _ = event(world.ask(client, b"QGET", b"q", b"g", b"EX", b"1"))
    assert world.ask(client, b"QWORKING", b"q", b"g", id, b"EX", b"10") == b":1\r\n"
    world.advance(5_000)
    assert world.ask(client, b"QGET", b"q", b"g") == NULL
    assert world.ask(client, b"QACK", b"q", b"g", id, b"REDO") == b":1\r\n"
    again, _ = event(world.ask(client, b"QGET", b"q", b"g"))
    assert again == id + b"_2"
    assert world.ask(client, b"QWORKING", b"q", b"g", id) == b":0\r\n"


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        (b"QADD q abc body", b"-ERR value is not a valid float\r\n"),
        (b"QADD q nan body", b"-ERR value is not a valid float\r\n"),
        (b"QADD q inf body", b"-ERR value is not a valid float\r\n"),
        (b"QADD q @ body", b"-ERR value is not a valid float\r\n"),
        (b"QADD q 1 body NOW", b"-ERR syntax error\r\n"),
        (b"QADD q 1 body NOBLOCK more", b"-ERR syntax error\r\n"),
        (b"QRPUSH q id body NOBLOCK more", b"-ERR syntax error\r\n"),
        (b"QADD q 1", b"-ERR wrong number of arguments for 'qadd' command\r\n"),
        (b"QGET q", b"-ERR wrong number of arguments for 'qget' command\r\n"),
        (b"QGET q g EX", b"-ERR syntax error\r\n"),
        (b"QGET q g EX 1 DEADLINE 1", b"-ERR syntax error\r\n"),
        (b"QGET q g EX -1", b"-ERR the time to acknowledge is negative\r\n"),
        (b"QGET q g BLOCK -1", b"-ERR timeout is negative\r\n"),
        (b"QGET q g BLOCK 1 BLOCK 1", b"-ERR syntax error\r\n"),
        (b"QACK q g x", b"-ERR invalid ID string\r\n"),
        (b"QACK q g 1_2_3_4", b"-ERR invalid ID string\r\n"),
        (b"QACK q g 1_2", b":0\r\n"),
        (b"QACK q g 1_2 UNDO", b"-ERR syntax error\r\n"),
        (b"QACK q", b"-ERR wrong number of arguments for 'qack' command\r\n"),
        (b"QNOTIFY g x", b"-ERR value is not a valid float\r\n"),
        (b"QNOTIFY g -1 q", b"-ERR timeout is negative\r\n"),
        (b"QWORKING q g 1_2 EX", b"-ERR syntax error\r\n"),
        (b"QRPOP q FOR 2", b"-ERR syntax error\r\n"),
        (b"QFLUSH", b"-ERR wrong number of arguments for 'qflush' command\r\n"),
    ],
)
def test_bad_arguments_are_refused(words: bytes, reply: bytes) -> None:
    world = World(late=False)
    assert world.ask(world.client(), *words.split()) == reply


def test_okq_commands_can_be_disabled() -> None:
    world = World(late=False)
    world.broker.okq = False
    client = world.client()
    assert world.ask(client, b"QACK", b"q", b"x").startswith(b"-ERR wrong number")
    assert world.ask(client, b"QNOTIFY", b"1").startswith(b"-ERR wrong number")


def test_qinfo_aligns_its_columns(world: World) -> None:
    client = world.client()
    world.ask(client, b"QADD", b"long-name", b"60", b"body")
    world.ask(client, b"QGET", b"long-name", b"g")
    world.ask(client, b"QADD", b"q", b"60", b"body")
    lines = world.ask(client, b"QINFO").split(b"\r\n")[2::2]
    assert lines == [
        b"long-name  g  total:1  inprogress:1  redo:0  done:0  available:0  consumers:0",
        b"q          -  total:1",
    ]


class FarStore(LateStore):
    """A remote store: it has its own clock, and does not report missed deadlines."""

    def __init__(self, ahead: int) -> None:
        super().__init__()
        self.ahead = ahead  # ms
        self.ran = 0

    def run(self, request: Request, now: int) -> Result | None:
        self.ran += 1
        return super().run(request, now + self.ahead)

    def tick(self, now: int) -> None:
        pass

    def next_due(self) -> int:
        return 0


@pytest.mark.parametrize("ahead", [-60_000, 0, 60_000])
def test_a_missed_deadline_is_noticed_in_time_whatever_the_clock_of_the_store(ahead: int) -> None:
    world = World(late=True)
    far = world.late = FarStore(ahead)
    world.broker = Broker(far, build_table(), Host(), lambda: 0)
    holding, waiting = world.client(), world.client()
    world.ask(holding, b"QADD", b"q", b"600", b"body")
    world.ask(holding, b"QGET", b"q", b"g", b"EX", b"10")
    world.ask(waiting, b"QGET", b"q", b"g", b"BLOCK", b"100")
    before = far.ran
    world.advance(9_990)
    assert world.replies(waiting) == b""
    world.advance(20)
    assert event(world.replies(waiting))[1] == b"body"
    assert far.ran - before < 10


def test_short_waits_for_an_event_that_is_held_for_long_leave_nothing_behind(world: World) -> None:
    client = world.client()
    world.ask(client, b"QADD", b"q", b"6000", b"body")
    world.ask(client, b"QGET", b"q", b"g", b"EX", b"3600")
    for _ in range(5000):
        world.ask(client, b"QGET", b"q", b"g", b"BLOCK", b"0.001")
        world.advance(1)
        assert world.replies(client) == NULL
    assert len(world.broker.poller.timers) < 2000


def test_a_waiting_client_gets_one_error_if_the_file_cannot_be_written() -> None:
    world = World(late=False)
    world.broker.journaling = True
    holding, first, second = world.client(), world.client(), world.client()
    world.ask(holding, b"QADD", b"q", b"60", b"body")
    world.ask(holding, b"QGET", b"q", b"g", b"EX", b"0.01")
    world.ask(first, b"QGET", b"q", b"g", b"BLOCK", b"5")
    world.replies(holding)
    world.now += 20
    # In one turn: the first gets the overdue event, the second the new one.
    world.send(second, b"QGET", b"other", b"g", b"BLOCK", b"5")
    world.send(holding, b"QADD", b"other", b"60", b"body")
    world.broker.roll_back(b"-MISCONF no\r\n")
    world.broker.commit()
    assert [client.out for client in (holding, first, second)] == [[b"-MISCONF no\r\n"]] * 3
