"""Adding jobs when nodes refuse or go away."""

from collections.abc import Callable

import pytest

from disque_spark.client import WireError
from disque_spark.sink.adder import Adder, Refusal
from tests.support.harness import free_port
from tests.support.scripted_node import ScriptedNode

JOBS = [("ADDJOB", "q", f"body {n}", 0) for n in range(10)]


def added(node: ScriptedNode) -> list[str]:
    return [request[2].decode() for request in node.requests if request[0] == b"ADDJOB"]


def takes(request: list[bytes]) -> bytes:
    return b"+OK\r\n"


def test_a_refusal_that_may_pass_is_tried_again_after_longer_and_longer_pauses() -> None:
    refusals = 3
    pauses: list[float] = []

    def answer(request: list[bytes]) -> bytes:
        nonlocal refusals
        if request[2] == b"body 4" and refusals:
            refusals -= 1
            return b"-NOREPL not enough\r\n"
        return b"+OK\r\n"

    with ScriptedNode(answer) as node:
        adder = Adder([node.address], discover=False, pause=1, sleep=pauses.append)
        assert adder.add(JOBS) == []
        adder.close()
    assert added(node) == [job[2] for job in JOBS] + ["body 4"] * 3
    assert pauses == [1, 2, 2]


def test_a_majority_that_knows_about_keys_is_waited_for_as_long_as_for_a_node() -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    with ScriptedNode(lambda request: b"-NOUNIQ no majority\r\n") as node:
        adder = Adder(
            [node.address], discover=False, retries=1, pause=1, sleep=sleep, clock=lambda: now
        )
        assert adder.add(JOBS[:1]) == [Refusal(0, "NOUNIQ no majority")]
        adder.close()
    assert 30 <= now < 34
    assert len(added(node)) > 10


def test_retries_go_to_the_next_node() -> None:
    def full(request: list[bytes]) -> bytes:
        return b"-NOREPL leaving\r\n"

    with ScriptedNode(full) as one, ScriptedNode(takes) as other:
        adder = Adder([one.address, other.address], discover=False, sleep=lambda s: None)
        assert adder.add(JOBS) == []
        adder.close()
    assert len(added(other)) == 10


def test_what_stays_refused_is_given_back_with_its_place() -> None:
    def answer(request: list[bytes]) -> bytes:
        if request[2] == b"body 7":
            return b"-PAUSED the queue\r\n"
        return b"-NOREPL never\r\n" if request[2] == b"body 2" else b"+OK\r\n"

    with ScriptedNode(answer) as node:
        adder = Adder([node.address], discover=False, retries=2, sleep=lambda s: None)
        assert adder.add(JOBS) == [Refusal(2, "NOREPL never"), Refusal(7, "PAUSED the queue")]
        adder.close()
    assert added(node).count("body 2") == 3
    assert added(node).count("body 7") == 1


def test_a_lost_node_is_replaced_and_only_what_was_not_answered_is_sent_again() -> None:
    def dies(request: list[bytes]) -> bytes | None:
        return None if request[2] == b"body 6" else b"+OK\r\n"

    with ScriptedNode(dies) as one, ScriptedNode(takes) as other:
        adder = Adder([one.address, other.address], discover=False, sleep=lambda s: None)
        assert adder.add(JOBS) == []
        adder.close()
    assert added(other) == [f"body {n}" for n in range(6, 10)]


def test_other_nodes_of_the_cluster_are_found() -> None:
    def knows(request: list[bytes]) -> bytes | None:
        if request[0] != b"HELLO":
            return None
        host, port = other.address.split(":")
        nodes = [("one", "127.0.0.1", one.address.split(":")[1]), ("other", host, port)]
        entries = b"".join(
            b"*4\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(w), w.encode()) for w in (*entry, "1"))
            for entry in nodes
        )
        return b"*4\r\n:1\r\n$3\r\none\r\n" + entries

    with ScriptedNode(knows) as one, ScriptedNode(takes) as other:
        adder = Adder([one.address], sleep=lambda s: None)
        assert adder.add(JOBS) == []
        adder.close()
    assert added(other) == [job[2] for job in JOBS]


def test_without_any_node_it_ends_after_the_time_for_failover() -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    adder = Adder(
        [f"127.0.0.1:{free_port()}"], failover=30, pause=1, sleep=sleep, clock=lambda: now
    )
    with pytest.raises(WireError):
        adder.add(JOBS)
    assert now == 30


def hello(own: str, *nodes: tuple[str, str, str]) -> bytes:
    """Return the reply of the node ``own``: names, addresses and priorities."""
    entries = b"".join(
        b"*4\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(w), w.encode()) for w in words)
        for name, address, priority in nodes
        for words in [(name, *address.split(":"), priority)]
    )
    return b"*%d\r\n:1\r\n$%d\r\n%b\r\n" % (2 + len(nodes), len(own), own.encode()) + entries


def test_all_nodes_are_visited_in_turn_but_those_that_leave_or_are_lost() -> None:
    gone = f"127.0.0.1:{free_port()}"
    with (
        ScriptedNode(lambda request: answers(0)(request)) as one,
        ScriptedNode(lambda request: answers(1)(request)) as two,
        ScriptedNode(takes) as leaving,
    ):

        def answers(at: int) -> Callable[[list[bytes]], bytes]:
            nodes = [("a", one.address, "1"), ("b", two.address, "1"), ("c", gone, "1")]
            told = hello("ab"[at], *nodes, ("d", leaving.address, "100"))
            return lambda request: told if request[0] == b"HELLO" else b"+OK\r\n"

        for first in range(6):
            adder = Adder([one.address], first=first, sleep=lambda s: None)
            for job in JOBS:
                assert adder.add([job]) == []
                adder.turn()
            adder.close()
    assert len(added(one)) == len(added(two)) == 30
    assert added(leaving) == []


def test_jobs_of_a_queue_go_to_the_node_that_is_best_for_it_while_it_is_there() -> None:
    with (
        ScriptedNode(lambda request: answers("a")(request)) as one,
        ScriptedNode(lambda request: answers("b")(request)) as two,
    ):

        def answers(at: str) -> Callable[[list[bytes]], bytes]:
            told = hello(at, ("a", one.address, "1"), ("b", two.address, "1"))
            port = two.address.partition(":")[2]
            best = f"*1\r\n*3\r\n$1\r\nb\r\n$9\r\n127.0.0.1\r\n${len(port)}\r\n{port}\r\n"
            others = {b"HELLO": told, b"QOWNER": best.encode()}
            return lambda request: others.get(request[0], b"+OK\r\n")

        adder = Adder([one.address], sleep=lambda s: None)
        for job in JOBS:
            adder.meet("q")
            assert adder.add([job]) == []
            adder.turn()
        adder.close()
    assert (len(added(one)), len(added(two))) == (0, 10)


def test_a_node_that_does_not_know_which_one_is_best_gets_the_jobs() -> None:
    with ScriptedNode(lambda request: answer(request)) as node:

        def answer(request: list[bytes]) -> bytes:
            return b"-ERR unknown command\r\n" if request[0] == b"QOWNER" else b"+OK\r\n"

        adder = Adder([node.address], discover=False)
        adder.meet("q")
        assert adder.add(JOBS) == []
        adder.close()
    assert len(added(node)) == len(JOBS)
