"""docs/guarantees.md: what a killed node knows after a restart with its file."""

from collections.abc import Callable

import pytest

from tests.support.harness import NodeFactory, Wire, wait_until
from tests.support.live_helpers import pairs

Check = Callable[[Wire], None]
GONE = b"gone"


def add(wire: Wire, *options: str | int) -> bytes:
    id = wire("ADDJOB", "q", "body", 0, *options)
    assert isinstance(id, bytes), id
    return id


def take(wire: Wire, *options: str | int) -> bytes:
    """Add a job and take it."""
    id = add(wire, *options)
    assert wire("GETJOB", "FROM", "q") == [[b"q", id, b"body"]]
    return id


def show(wire: Wire, id: bytes) -> dict[str, object]:
    return pairs(wire("SHOW", id))


def state(wire: Wire, id: bytes) -> object:
    """Return how the job ended, as far as the node knows."""
    reply = wire("WAITJOB", 1, id)
    assert isinstance(reply, list)
    return reply[0][1:]


def ending(command: str, *options: str) -> Callable[[Wire], Check]:
    def prepare(wire: Wire) -> Check:
        id = take(wire)
        assert wire(command, id, *options) == 1

        def check(wire: Wire) -> None:
            assert wire("SHOW", id) is None
            if command == "CANCEL":
                assert state(wire, id) == [b"cancelled", None]
                assert str(wire("WORKING", id)).startswith("CANCELLED")
            else:
                assert state(wire, id) == ([b"acked", b"bytes"] if options else [GONE, None])

        return check

    return prepare


def delivered(wire: Wire) -> Check:
    id = take(wire, "RETRY", 100)

    def check(wire: Wire) -> None:
        shown = show(wire, id)
        assert (shown["state"], shown["additional-deliveries"]) == (b"active", 0)
        assert 90_000 < int(str(shown["next-requeue-within"])) <= 101_000

    return check


def handed_back(wire: Wire) -> Check:
    id = take(wire, "RETRY", 100)
    assert wire("NACK", id, "DELAY", 5000, "REASON", "busy") == 1
    assert show(wire, id)["nacks"] == 1

    def check(wire: Wire) -> None:
        shown = show(wire, id)
        assert (shown["nacks"], shown["last-reason"]) == (1, b"busy")
        assert 4_900_000 < int(str(shown["next-requeue-within"])) <= 5_000_000

    return check


def moved(command: str) -> Callable[[Wire], Check]:
    def prepare(wire: Wire) -> Check:
        id = add(wire, "RETRY", 100)
        assert wire("DEQUEUE", id) == 1
        if command == "ENQUEUE":
            assert wire("ENQUEUE", id) == 1

        def check(wire: Wire) -> None:
            assert show(wire, id)["state"] == (b"queued" if command == "ENQUEUE" else b"active")

        return check

    return prepare


def changed(wire: Wire) -> Check:
    id = add(wire)
    assert wire("UPDATEJOB", id, "BODY", "other", "DELAY", 500, "TTL", 1000, "RETRY", 7) == b"OK"

    def check(wire: Wire) -> None:
        shown = show(wire, id)
        assert (shown["body"], shown["retry"], shown["state"]) == (b"other", 7, b"active")
        assert 900 < int(str(shown["ttl"])) <= 1000
        assert 400_000 < int(str(shown["next-requeue-within"])) <= 501_000

    return check


def in_another_queue(wire: Wire) -> Check:
    id = add(wire)
    assert wire("QMOVE", "q", "to") == 1

    def check(wire: Wire) -> None:
        shown = show(wire, id)
        assert (shown["state"], shown["queue"], shown["added-to"]) == (b"queued", b"to", b"q")

    return check


def given_up(wire: Wire) -> Check:
    wire("QSET", "q", "DEAD", "q.dead")
    id = take(wire)
    assert wire("NACK", id, "DEAD", "REASON", "no") == 1
    [[_, letter, _]] = wire("QPEEK", "q.dead", 1)  # type: ignore[misc]

    def check(wire: Wire) -> None:
        shown = show(wire, letter)
        assert (shown["state"], shown["queue"]) == (b"queued", b"q.dead")
        assert (shown["first-id"], shown["dead-reason"]) == (id, b"no")
        assert wire("SHOW", id) is None
        assert wire("REDRIVE", "q.dead") == 1

    return check


def sent_back(wire: Wire) -> Check:
    wire("QSET", "q", "DEAD", "q.dead")
    id = take(wire)
    wire("NACK", id, "DEAD")
    assert wire("REDRIVE", "q.dead") == 1
    [[_, new, _]] = wire("QPEEK", "q", 1)  # type: ignore[misc]

    def check(wire: Wire) -> None:
        assert (show(wire, new)["state"], show(wire, new)["queue"]) == (b"queued", b"q")
        assert wire("JSCAN", "BUSYLOOP")[1] == [new]  # type: ignore[index]

    return check


def with_key(wire: Wire) -> Check:
    id = add(wire, "UNIQUE", "one")
    done = add(wire, "UNIQUE", "two", "FOR", 100)
    assert wire("ACKJOB", done) == 1

    def check(wire: Wire) -> None:
        assert add(wire, "UNIQUE", "one") == id
        assert add(wire, "UNIQUE", "two", "FOR", 100) == done

    return check


def at_most_once(wire: Wire) -> Check:
    queued = add(wire, "RETRY", 0)
    later = add(wire, "RETRY", 0, "DELAY", 1000)

    def check(wire: Wire) -> None:
        assert show(wire, queued)["state"] == b"queued"
        assert 900_000 < int(str(show(wire, later)["next-requeue-within"])) <= 1_000_000

    return check


def with_policy(wire: Wire) -> Check:
    assert wire("QSET", "q", "ATTEMPTS", 3) == b"OK"
    assert wire("QSET", "r", "TTL", 3) == b"OK"
    assert wire("QDEL", "r") == 1

    def check(wire: Wire) -> None:
        assert wire("QGET") == [[b"name", b"q", b"attempts", 3]]

    return check


def paused(wire: Wire) -> Check:
    assert wire("PAUSE", "q", "in") == b"in"

    def check(wire: Wire) -> None:
        assert str(wire("ADDJOB", "q", "body", 0)).startswith("PAUSED")

    return check


def in_a_group(wire: Wire) -> Check:
    wire("MULTI")
    wire("ADDJOB", "q", "one", 0, "HEADERS", 1, "a", "b")
    wire("ADDJOB", "q", "two", 0)
    ids = wire("EXEC")
    assert isinstance(ids, list)

    def check(wire: Wire) -> None:
        assert [show(wire, id)["body"] for id in ids] == [b"one", b"two"]
        assert show(wire, ids[0])["headers"] == [b"a", b"b"]

    return check


PARTS: dict[str, Callable[[Wire], Check]] = {
    "ACKJOB": ending("ACKJOB"),
    "ACKJOB RESULT": ending("ACKJOB", "RESULT", "bytes"),
    "FASTACK": ending("FASTACK"),
    "DELJOB": ending("DELJOB"),
    "CANCEL": ending("CANCEL"),
    "GETJOB": delivered,
    "NACK": handed_back,
    "ENQUEUE": moved("ENQUEUE"),
    "DEQUEUE": moved("DEQUEUE"),
    "UPDATEJOB": changed,
    "QMOVE": in_another_queue,
    "NACK DEAD": given_up,
    "REDRIVE": sent_back,
    "UNIQUE": with_key,
    "RETRY 0": at_most_once,
    "QSET": with_policy,
    "PAUSE": paused,
    "EXEC": in_a_group,
}


@pytest.mark.parametrize("part", PARTS)
def test_a_killed_node_is_back_with_what_the_page_says(
    disque_server: NodeFactory, part: str
) -> None:
    node = disque_server("--appendonly", "yes")
    check = PARTS[part](node.wire())
    wait_until(lambda: node.info("persistence")["progress_file_pending"] == "0")
    node.kill()
    node = disque_server("--appendonly", "yes", cwd=node.log.parent)
    wire = node.wire()
    wait_until(lambda: wire("PING") == b"PONG")
    check(wire)


def test_without_a_file_a_killed_node_has_policies_and_nothing_else(
    disque_server: NodeFactory,
) -> None:
    node = disque_server()
    wire = node.wire()
    check = with_policy(wire)
    paused(wire)
    wire("ADDJOB", "other", "body", 0)
    node.kill()
    wire = disque_server(cwd=node.log.parent).wire()
    check(wire)
    assert wire("PAUSE", "q", "state") == b"none"
    assert wire("JSCAN", "BUSYLOOP") == [b"0", []]
