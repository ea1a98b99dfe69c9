"""No command of bananaq, whatever its arguments and however many events there are, makes a turn
long.

Counts the lines of Python that it runs in each turn. Every command that only bananaq has is here.
"""

import pytest

from disque_bananaq.commands.table import build_table
from disque_bananaq.core import broker
from disque_trio.node.commands.table import build_table as build_table_of_disque
from disque_trio.respserver.client import Client
from disque_trio.respserver.slices import do_slice
from packages.bananaq.tests.unit.test_broker import World
from tests.support.lines import Words, lines_of, name_of

if not broker.__file__.endswith(".py"):
    pytest.skip("the lines of compiled code cannot be counted", allow_module_level=True)

QUEUES = 3_000
EVENTS = 5_000
GROUPS = 1_000
WORDS = 20_000
MOST = 120_000  # lines; compiled, a few ms


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


# What is done to a node with very many events, queues, groups and consumers.
REQUESTS: list[Words] = [
    ("QADD", "new", 100, "x" * 1_000_000),
    ("QGET", "q", "g", "EX", 10),
    ("QGET", "q", "g0"),
    ("QACK", "q", "g0", "1_2", "REDO"),
    ("QWORKING", "q", "g0", "1_2", "EX", 10),
    ("QNOTIFY", "none", 10, *names("mail.", 1_000)),
    ("QNOTIFY", "none", 0, *names("new.", WORDS)),
    ("QNOTIFY", "none", 10, *names("new.", WORDS)),
    ("QNOTIFY", "none", 10, *["q"] * WORDS),
    ("QFLUSH", "q"),
    ("QSTATUS",),
    ("QSTATUS", "q"),
    ("QSTATUS", *names("new.", WORDS)),
    ("QSTATUS", *["q"] * WORDS),
    ("QSTATUS", *names("mail.", 50), "GROUPS", *names("g", 1_000)),
    ("QINFO",),
    ("QINFO", "q"),
    ("QINFO", *names("new.", WORDS)),
    ("QINFO", *names("mail.", 50), "GROUPS", *names("g", 1_000)),
    ("QREGISTER", *names("mail.", 1_000)),
    ("QREGISTER", *names("new.", WORDS)),
    ("QLPUSH", "q", "id", "x" * 1_000_000),
    ("QRPUSH", "q", "id", "x" * 1_000_000),
    ("QRPOP", "q"),
    ("QLPEEK", "q"),
    ("QRPEEK", "q"),
]


@pytest.fixture
def crowd() -> World:
    """Many events that are in progress in many groups."""
    world = World(late=False)
    client = world.client()
    for number in range(QUEUES):
        world.ask(client, b"QADD", b"mail.%d" % number, b"1000", b"x")
    for _ in range(EVENTS):
        world.ask(client, b"QADD", b"q", b"1000", b"x")
    for number in range(GROUPS):
        world.ask(client, b"QGET", b"q", b"g%d" % number)
    for _ in range(EVENTS):
        world.ask(client, b"QGET", b"q", b"g")
    return world


def longest(world: World, client: Client, request: Words) -> int:
    """The number of lines of the longest turn until ``request`` has been served."""
    node = world.broker
    words = [str(word).encode() for word in request]
    most = lines_of(lambda: node.command(client, words, world.now))
    for _ in range(100_000):
        if node.batches.waiting:
            most = max(most, lines_of(lambda: do_slice(node, world.now)))
        elif 0 < node.next_wake() <= world.now:
            most = max(most, lines_of(lambda: node.tick(world.now)))
        else:
            break
    node.commit()
    return most


def test_every_command_is_here() -> None:
    only_here = build_table().keys() - build_table_of_disque().keys()
    assert {request[0].lower().encode() for request in REQUESTS if isinstance(request[0], str)} >= (
        only_here
    )


@pytest.mark.parametrize("request_", REQUESTS, ids=name_of)
@pytest.mark.slow
def test_no_command_makes_a_turn_long(crowd: World, request_: Words) -> None:
    client = crowd.client()
    assert longest(crowd, client, request_) < MOST
    assert lines_to_leave(crowd, client) < MOST


def lines_to_leave(world: World, client: Client) -> int:
    """The number of lines that it takes to forget ``client``."""
    return lines_of(lambda: world.broker.forget_client(client))


@pytest.mark.slow
def test_events_that_expire_or_are_missed_at_once_make_no_turn_long(crowd: World) -> None:
    crowd.now += 2_000_000
    assert longest(crowd, crowd.client(), ("QADD", "new", 100, "x")) < MOST
    assert list(crowd.broker._store.index.queues) == [b"new"]  # type: ignore[attr-defined]
