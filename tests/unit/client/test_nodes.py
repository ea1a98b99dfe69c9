"""Addresses, the list of HELLO, and the order in which nodes are tried."""

import random

import pytest

from disque_trio.client.nodes import (
    AVOID_SECONDS,
    Directory,
    Hello,
    Node,
    parse_address,
    parse_hello,
    parse_told,
)
from disque_trio.notation.addresses import Address
from disque_trio.respclient.errors import ConnectionLost, ProtocolError

A, B, C = (letter * 40 for letter in "abc")
AT = {id: Address(f"10.0.0.{n}", 7711) for n, id in enumerate((A, B, C))}


def hello_of(id: str, **priorities: int) -> Hello:
    ids = {"a": A, "b": B, "c": C}
    nodes = tuple(Node(ids[k], AT[ids[k]], p) for k, p in priorities.items())
    return Hello(1, id, nodes)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.2:7712", Address("10.0.0.2", 7712)),
        ("queue.example", Address("queue.example", 7711)),
        ("[::1]:7712", Address("::1", 7712)),
        ("[::1]", Address("::1", 7711)),
        ("::1", Address("::1", 7711)),
        ("unix:/run/disque.sock", Address(path="/run/disque.sock")),
    ],
)
def test_every_form_of_an_address_is_parsed(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", ":7711", "h:x", "h:0", "h:65536", "[::1", "[::1]x", "unix:"])
def test_a_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|port|expected"):
        parse_address(text)


def test_a_node_without_an_ip_has_the_address_that_was_used() -> None:
    used = Address("10.9.9.9", 1234)
    reply = [1, A.encode(), [A.encode(), b"", b"7711", b"1"], [B.encode(), b"10.0.0.1", b"7", b"5"]]
    hello = parse_hello(reply, used)
    assert hello.node_id == A
    assert hello.nodes == (Node(A, used, 1), Node(B, Address("10.0.0.1", 7), 5))


@pytest.mark.parametrize(
    "reply",
    [None, b"OK", 1, [], [1], [2, b"x"], [b"server", b"redis", b"proto", 3], [1, b"x", [b"y"]]],
)
def test_a_hello_reply_of_the_wrong_shape_is_a_protocol_error(reply: object) -> None:
    with pytest.raises(ProtocolError, match="does not answer HELLO"):
        parse_hello(reply, Address("h", 1))


def test_candidates_are_ordered_by_priority_and_prefer_the_current_node_among_equals() -> None:
    directory = Directory([AT[A]])
    directory.learn(hello_of(A, a=5, b=1, c=1))
    for _ in range(20):
        assert directory.candidates(0.0, AT[C]) == [AT[C], AT[B], AT[A]]


def test_equal_nodes_are_tried_in_random_order() -> None:
    directory = Directory(AT.values())
    assert len({tuple(directory.candidates(0.0)) for _ in range(200)}) == 6


def test_a_leaving_node_comes_last_until_time_passes_or_it_says_otherwise() -> None:
    directory = Directory([AT[A]])
    directory.learn(hello_of(A, a=1, b=10))
    directory.avoid(A, 100.0)
    directory.learn(hello_of(B, a=1, b=10))  # the others have not heard of it yet
    assert directory.candidates(101.0) == [AT[B], AT[A]]
    assert directory.candidates(100.0 + AVOID_SECONDS) == [AT[A], AT[B]]
    directory.learn(hello_of(A, a=1, b=10))  # it says itself that it stays
    assert directory.candidates(101.0) == [AT[A], AT[B]]


def test_better_nodes_are_those_with_a_lower_priority_number() -> None:
    directory = Directory([AT[A]])
    directory.learn(hello_of(A, a=100, b=5, c=1))
    assert directory.better_than(A, 0.0) == [AT[C], AT[B]]
    assert directory.better_than(B, 0.0) == [AT[C]]
    assert directory.better_than(C, 0.0) == []


def test_seeds_that_match_no_known_node_come_before_leaving_nodes() -> None:
    seed = Address("seed", 7711)
    directory = Directory([seed])
    directory.learn(hello_of(B, a=100, b=1))
    assert directory.candidates(0.0) == [AT[B], seed, AT[A]]


def test_a_program_s_own_random_sequence_is_left_alone() -> None:
    random.seed(7)
    before = random.getstate()
    directory = Directory([AT[A], AT[B]])
    directory.candidates(0.0)
    assert random.getstate() == before


def test_an_address_that_a_node_has_told_and_nobody_can_read_is_one_that_nobody_can_reach() -> None:
    with pytest.raises(ConnectionLost, match="expected an address"):
        parse_told('"><img/src=x>:7711')
    assert parse_told("[::1]:1") == Address(host="::1", port=1)
