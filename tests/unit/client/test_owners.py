"""Which node is best for which queue: what a client keeps in mind of the answers."""

import pytest

from disque_trio.client.nodes import AVOID_SECONDS, Node
from disque_trio.client.owners import ASK_AGAIN, MOST_ASKED, MOST_QUEUES, Owners, parse_owners
from disque_trio.notation.addresses import Address
from disque_trio.respclient.errors import ProtocolError

A, B, C = (Node(letter * 40, Address(f"10.0.0.{letter}", 7711), 1) for letter in "abc")


def told(**nodes: Node) -> Owners:
    """What is known after answers about these queues, at time 0."""
    owners = Owners()
    assert owners.due(nodes, 0.0) == list(nodes)
    for queue, node in nodes.items():
        owners.learn(queue, node)
    return owners


def test_a_queue_is_asked_about_at_first_and_from_time_to_time() -> None:
    owners = told(q=A)
    assert owners.due(["q"], 0.5 * ASK_AGAIN) == []
    assert owners.due(["q", "r"], ASK_AGAIN) == ["q", "r"]
    assert owners.best(["q"], ASK_AGAIN) is A  # until there is another answer
    owners.learn("q", B)
    assert owners.best(["q"], ASK_AGAIN) is B


def test_many_clients_do_not_ask_all_at_once() -> None:
    assert len({told(q=A).left(["q"], 0.0) for _ in range(20)}) > 10


def test_a_question_that_is_not_answered_is_asked_again_later() -> None:
    owners = Owners()
    assert owners.due(["q"], 0.0) == ["q"]
    assert owners.due(["q"], 1.0) == []
    assert owners.best(["q"], 1.0) is None
    assert owners.due(["q"], ASK_AGAIN) == ["q"]


def test_several_queues_have_the_node_that_is_best_for_most_or_for_the_first() -> None:
    owners = told(a=A, b=B, c=C, d=B)
    assert owners.best(["a", "b", "c"], 0.0) is A
    assert owners.best(["c", "b", "a"], 0.0) is C
    assert owners.best(["a", "b", "c", "d"], 0.0) is B
    assert owners.best(["unknown", "c"], 0.0) is C


def test_a_node_to_avoid_is_not_best_for_a_while_and_all_queues_are_asked_about_again() -> None:
    owners = told(a=A, b=B)
    owners.avoid(A.id, 1.0)
    assert owners.best(["a"], 1.0) is None
    assert owners.best(["a", "b"], 1.0) is B
    assert owners.due(["a", "b"], 1.0) == ["a", "b"]
    assert owners.best(["a"], 1.0 + AVOID_SECONDS) is A


def test_only_so_many_queues_are_kept_in_mind() -> None:
    owners = told(first=A, second=A)
    for number in range(MOST_QUEUES - 1):
        owners.due([f"q{number}"], 1.0)
    assert owners.best(["first"], 1.0) is None
    assert owners.best(["second"], 1.0) is A


def test_very_many_queues_are_asked_about_in_parts() -> None:
    owners = Owners()
    queues = [f"q{number}" for number in range(MOST_ASKED + 10)]
    assert owners.due(queues, 0.0) == queues[:MOST_ASKED]
    assert owners.due(queues, 0.0) == queues[MOST_ASKED:]


def test_an_answer_about_a_queue_that_nobody_asked_about_is_ignored() -> None:
    owners = Owners()
    owners.learn("q", A)
    assert owners.best(["q"], 0.0) is None


def test_a_node_without_an_ip_is_the_one_that_was_asked() -> None:
    used = Address("10.9.9.9", 1)
    reply = [[b"a" * 40, b"", b"7711"], [b"b" * 40, b"10.0.0.b", b"7711"]]
    assert parse_owners(reply, used) == [Node(A.id, used, 1), B]


@pytest.mark.parametrize("reply", [None, b"OK", 1, [1], [[b"x"]], [[b"x", b"10.0.0.1", b"y"]]])
def test_a_reply_of_the_wrong_shape_is_a_protocol_error(reply: object) -> None:
    with pytest.raises(ProtocolError, match="does not answer QOWNER"):
        parse_owners(reply, Address("h", 1))
