"""The options of policies are those of the table, for all who set and read them."""

from dataclasses import fields
from typing import Any

import pytest

from disque_trio.client import Policy, PolicyOptions
from disque_trio.client.policies import policy, words
from disque_trio.policy_options import NAME, NUMBER, OPTIONS, RATE, SECONDS, WORD, PolicyOption
from disque_trio.respclient.errors import ProtocolError

VALUES: dict[str, tuple[Any, Any]] = {
    NUMBER: (7, 7),
    NAME: ("lost", b"lost"),
    RATE: ("50/s", b"50/s"),
    SECONDS: ((0.5, 60.0), [b"0.5", b"60"]),
    WORD: ("fair", b"fair"),
}
"""By kind: a value of an option in Python, and in the reply of a node."""


def test_the_client_has_the_options_of_the_table() -> None:
    names = [option.name for option in OPTIONS]
    assert list(PolicyOptions.__annotations__) == names
    assert [field.name for field in fields(Policy)] == ["name", *names]
    explained = (PolicyOptions.__doc__ or "").partition("Keys:")[2]
    assert [
        name for name in names if f"{name}:" not in explained and f"{name}," not in explained
    ] == []


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_each_option_is_sent_and_read(option: PolicyOption) -> None:
    value, answer = VALUES[option.kind]
    if option.kind == SECONDS and option.arity == 1:
        value, answer = value[0], answer[0]
    sent = words({option.name: value})
    assert sent[0] == option.word
    assert len(sent) == 1 + option.arity
    read = policy([b"name", b"q", option.word.lower().encode(), answer])
    assert read == Policy("q", **{option.name: value})
    assert words({option.name: None}) == []


def test_what_newer_nodes_know_is_left_out() -> None:
    assert policy([b"name", b"q", b"colour", b"red", b"ttl", 5]) == Policy("q", ttl=5)


@pytest.mark.parametrize("fields", [[b"ttl", b"x"], [b"dead", 5], [b"backoff", [b"1"]]])
def test_values_of_another_kind_are_refused(fields: list[Any]) -> None:
    with pytest.raises(ProtocolError):
        policy([b"name", b"q", *fields])


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="no option 'colour'; it has attempts, dead"):
        words({"colour": "red"})
