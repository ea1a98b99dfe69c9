"""Which process of a server a client is handed to."""

from collections.abc import Callable, Iterable

import pytest

from disque_trio.node.core.client_place import (
    ABOUT_JOB,
    ABOUT_NODE,
    ENOUGH,
    FOREVER,
    KNOWS,
    MOST,
    MOST_DOUBLINGS,
    MOST_ENOUGH,
    NEUTRAL,
    QUEUES,
    REST,
    ClientPlace,
    Subject,
    subject,
)
from disque_trio.node.core.queues.owners import owner
from tests.support.node_bench import Bench

NODES = [b"%040d" % number for number in range(3)]
FIRST, OWN, OTHER = NODES
PLAIN = Subject(NEUTRAL)


def of(node: bytes) -> Callable[[], bytes]:
    """Finds further names of queues that are best at ``node``."""
    names = (b"queue-%d" % number for number in range(1_000))
    return lambda: next(name for name in names if owner(name, NODES) == node)


def look(place: ClientPlace, *subjects: Subject, nodes: Iterable[bytes] = NODES) -> bytes:
    """Let the client send commands one by one, until it is handed over, or need not be looked
    at."""
    for one in subjects:
        place.look([one], OWN, FIRST if FIRST in nodes else b"", list(nodes))
        if place.to or place.rest:
            break
    return place.to


def about(*queues: bytes) -> Subject:
    return Subject(QUEUES, queues)


def test_a_client_goes_where_its_queue_is_when_that_is_certain() -> None:
    place, mail = ClientPlace(), of(OTHER)()
    for _ in range(ENOUGH - 1):
        assert look(place, PLAIN, about(mail)) == b""
        assert place.rest == 0
    assert look(place, about(mail)) == OTHER
    assert place.rest == REST


def test_queues_that_are_best_at_the_same_process_are_like_one() -> None:
    name = of(OTHER)
    assert look(ClientPlace(), *[about(name(), name()) for _ in range(ENOUGH)]) == OTHER


def test_a_client_that_is_where_its_queue_is_stays_and_is_rarely_looked_at() -> None:
    place, mine = ClientPlace(), of(OWN)()
    rests = []
    for _ in range(MOST_DOUBLINGS + 2):
        assert look(place, *[about(mine)] * MOST_ENOUGH) == b""
        rests.append(place.rest)
    assert rests == [*(REST << n for n in range(MOST_DOUBLINGS + 1)), REST << MOST_DOUBLINGS]


def test_what_a_client_sends_at_once_counts_once() -> None:
    place, mail = ClientPlace(), of(OTHER)()
    for to in (*[b""] * (ENOUGH - 1), OTHER):
        place.look([about(mail)] * 3 * MOST, OWN, FIRST, NODES)
        assert place.to == to
    place = ClientPlace()
    place.look([about(mail), about(of(OWN)())], OWN, FIRST, NODES)
    assert place.to == FIRST


def test_clients_that_mix_queues_meet_at_the_first_process() -> None:
    place = ClientPlace()
    assert look(place, about(of(OTHER)()), about(of(OWN)())) == FIRST
    assert place.rest == REST
    assert look(ClientPlace(), about(of(OTHER)(), of(OWN)())) == FIRST
    there = ClientPlace(place.looks)
    there.look([about(of(OTHER)()), about(of(OWN)())], FIRST, FIRST, NODES)
    assert there.to == b""
    assert there.rest == 2 * REST
    assert look(ClientPlace(), about(of(OTHER)(), of(OWN)()), nodes=NODES[1:]) == b""


def test_a_client_that_names_no_queue_stays() -> None:
    place = ClientPlace()
    assert look(place, *[PLAIN] * (MOST - 1)) == b""
    assert place.rest == 0
    assert look(place, PLAIN) == b""
    assert place.rest == REST


def test_a_client_that_changes_its_queue_goes_on_but_ever_more_rarely() -> None:
    place, mail, text = ClientPlace(), of(OTHER)(), of(FIRST)()
    assert look(place, *[about(mail)] * ENOUGH) == OTHER
    taken = ClientPlace(place.looks, place.home)
    for to in (*[b""] * (2 * ENOUGH - 1), FIRST):
        taken.look([about(text)], OTHER, FIRST, NODES)
        assert taken.to == to
    assert taken.rest == 2 * REST


def test_who_asks_about_the_node_means_the_one_with_this_port() -> None:
    place, mail = ClientPlace(), of(OTHER)()
    assert look(place, PLAIN, Subject(ABOUT_NODE)) == FIRST
    assert place.rest == 0
    # There, or if nobody has the port for its own, it is a client like any other.
    assert look(place, Subject(ABOUT_NODE), *[about(mail)] * ENOUGH) == OTHER
    once = ClientPlace()
    once.look([about(mail), Subject(ABOUT_NODE)], OWN, FIRST, NODES)
    assert once.to == FIRST
    assert look(ClientPlace(), Subject(ABOUT_NODE), nodes=[OWN, OTHER]) == b""


def test_who_asks_about_a_job_means_the_node_where_it_was_added() -> None:
    nodes = [b"%08d" % n + b"0" * 32 for n in range(3)]
    for id, to in ((b"D-00000002-x-1", nodes[2]), (b"D-00000001-x-1", b""), (b"D-7-x", b"")):
        place = ClientPlace()
        place.look([Subject(ABOUT_JOB, [id])], nodes[1], nodes[0], nodes)
        assert place.to == to


def test_who_has_used_a_queue_asks_about_the_node_that_it_is_at() -> None:
    place = ClientPlace()
    assert look(place, about(b"mail")) == b""
    assert look(place, Subject(ABOUT_NODE)) == b""


def test_who_knows_the_nodes_is_where_it_connected_to_for_ever() -> None:
    place = ClientPlace()
    assert look(place, Subject(KNOWS), about(of(OTHER)())) == FIRST
    assert place.rest == FOREVER
    assert look(ClientPlace(), Subject(KNOWS), nodes=[OWN, OTHER]) == b""


def test_a_node_that_leaves_gives_all_clients_away() -> None:
    assert look(ClientPlace(), *[about(of(OWN)())] * ENOUGH, nodes=[FIRST, OTHER]) != b""


@pytest.mark.parametrize(
    ("words", "kind", "names"),
    [
        ("ADDJOB q body 0", QUEUES, [b"q"]),
        ("addjob q body 0 REPLICATE 1", QUEUES, [b"q"]),
        ("GETJOB NOHANG COUNT 2 FROM a b", QUEUES, [b"a", b"b"]),
        ("GETJOBS FROM a", QUEUES, [b"a"]),
        ("GETJOB PATTERN FROM a*", NEUTRAL, []),
        ("GETJOB nonsense", NEUTRAL, []),
        ("QLEN q", QUEUES, [b"q"]),
        ("QMOVE a b", QUEUES, [b"a", b"b"]),
        ("ADDJOB q", NEUTRAL, []),
        ("ACKJOB D-1", NEUTRAL, []),
        ("SHOW D-1 CLIENT", ABOUT_JOB, [b"D-1"]),
        ("SHOW", NEUTRAL, []),
        ("QGET", NEUTRAL, []),
        ("unknown q", NEUTRAL, []),
        ("PING", NEUTRAL, []),
        ("HELLO 3", NEUTRAL, []),
        ("CLIENT SETINFO LIB-NAME x", NEUTRAL, []),
        ("CLIENT ID", NEUTRAL, []),
        ("COMMAND DOCS", NEUTRAL, []),
        ("CLIENT LIST", ABOUT_NODE, []),
        ("CLUSTER NODES", ABOUT_NODE, []),
        ("CONFIG GET port", ABOUT_NODE, []),
        ("INFO", ABOUT_NODE, []),
        ("SCANQUEUES", ABOUT_NODE, []),
        ("JSCAN QUEUE q", ABOUT_NODE, []),
        ("HELLO", KNOWS, []),
        ("QOWNER q", KNOWS, []),
        ("CONSUME q CREDIT 1", KNOWS, []),
    ],
)
def test_what_a_command_is_about(bench: Bench, words: str, kind: int, names: list[bytes]) -> None:
    found = subject(bench.node, words.encode().split())
    assert (found.kind, list(found.names)) == (kind, names)
