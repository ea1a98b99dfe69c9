"""What COMMAND tells of arguments and keys, as Redis tells them."""

from typing import Any

import pytest

from tests.support.node_bench import Bench


def docs(bench: Bench, name: str) -> Any:
    """Return what COMMAND DOCS tells of a command, in RESP3."""
    client = bench.client()
    bench.ask(client, "HELLO", 3)
    reply: Any = bench.ask(client, "COMMAND", "DOCS", name)
    return reply[name.encode()]


def keys(bench: Bench, name: str) -> list[tuple[set[bytes], Any, Any]]:
    """Return the keys of a command: flags, what they come after, and the last one."""
    client = bench.client()
    bench.ask(client, "HELLO", 3)
    reply: Any = bench.ask(client, "COMMAND", "INFO", name)
    found = []
    for key in reply[0][8]:
        search = key[b"begin_search"][b"spec"]
        place = search.get(b"index", search.get(b"keyword"))
        found.append((set(key[b"flags"]), place, key[b"find_keys"][b"spec"].get(b"lastkey")))
    return found


def test_arguments_have_names_types_words_and_flags(bench: Bench) -> None:
    assert docs(bench, "redrive")[b"arguments"] == [
        {b"name": b"queue", b"type": b"key", b"key_spec_index": 0},
        {b"name": b"queue", b"type": b"key", b"key_spec_index": 1, b"token": b"TO",
         b"flags": [b"optional"]},
        {b"name": b"count", b"type": b"integer", b"token": b"COUNT", b"flags": [b"optional"]},
        {b"name": b"id", b"type": b"string", b"token": b"MATCH",
         b"flags": [b"optional", b"multiple"]},
    ]  # fmt: skip
    assert docs(bench, "getjob")[b"arguments"][-2:] == [
        {b"name": b"pattern", b"type": b"pure-token", b"token": b"PATTERN",
         b"flags": [b"optional"]},
        {b"name": b"queue", b"type": b"key", b"key_spec_index": 0, b"token": b"FROM",
         b"flags": [b"multiple"]},
    ]  # fmt: skip


def test_what_belongs_together_is_a_block_and_choices_are_one_of_several(bench: Bench) -> None:
    by_name = {argument[b"name"]: argument for argument in docs(bench, "jscan")[b"arguments"]}
    assert by_name[b"header"][b"type"] == b"block"
    assert [one[b"name"] for one in by_name[b"header"][b"arguments"]] == [b"name", b"value"]
    assert by_name[b"header"][b"flags"] == [b"optional", b"multiple", b"multiple_token"]
    assert by_name[b"reply"][b"type"] == b"oneof"
    assert [one[b"token"] for one in by_name[b"reply"][b"arguments"]] == [b"all", b"id", b"counts"]


def test_subcommands_have_arguments_of_their_own(bench: Bench) -> None:
    found = docs(bench, "config")
    assert b"arguments" not in found
    assert set(found[b"subcommands"]) == {
        b"config|get", b"config|set", b"config|rewrite", b"config|resetstat"
    }  # fmt: skip
    assert found[b"subcommands"][b"config|rewrite"][b"arguments"] == []
    assert b"arguments" not in docs(bench, "time")


def test_both_protocols_are_told_the_same(bench: Bench) -> None:
    flat: Any = bench("COMMAND", "DOCS", "qlen")
    assert flat[0] == b"qlen"
    assert flat[1][-2:] == [
        b"arguments", [[b"name", b"queue", b"type", b"key", b"key_spec_index", 0]]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("addjob", [({b"RW", b"INSERT"}, 1, 0)]),
        ("getjob", [({b"RW", b"ACCESS"}, b"FROM", -1)]),
        ("consume", [({b"RW", b"ACCESS", b"incomplete"}, 1, None)]),
        ("qmove", [({b"RW", b"ACCESS"}, 1, 0), ({b"RW", b"INSERT"}, 2, 0)]),
        ("qlen", [({b"RO"}, 1, 0)]),
        ("qpeek", [({b"RO", b"ACCESS"}, 1, 0)]),
        ("jscan", [({b"RO", b"ACCESS", b"incomplete"}, b"QUEUE", None)]),
        ("pause", [({b"RW", b"ACCESS", b"INSERT", b"variable_flags"}, 1, 0)]),
        ("qkeys", [({b"RO"}, 1, 0)]),
        ("bindings", [({b"RO"}, b"QUEUE", 0)]),
        ("updatejob", [({b"RW", b"ACCESS", b"INSERT", b"variable_flags"}, b"QUEUE", 0)]),
        ("ackjob", []),
        ("ping", []),
    ],
)
def test_keys_are_where_requests_have_names_of_queues(
    bench: Bench, name: str, expected: object
) -> None:
    assert keys(bench, name) == expected


def test_getkeysandflags_tells_what_is_needed_of_each_queue(bench: Bench) -> None:
    def asked(*request: str) -> object:
        return bench("COMMAND", "GETKEYSANDFLAGS", *request)

    assert asked("QMOVE", "a", "b") == [[b"a", [b"RW", b"ACCESS"]], [b"b", [b"RW", b"INSERT"]]]
    assert asked("QLEN", "a") == [[b"a", [b"RO"]]]
    assert asked("PAUSE", "a", "in") == [[b"a", [b"RW", b"ACCESS", b"INSERT"]]]
    assert asked("PAUSE", "a", "state") == [[b"a", [b"RO"]]]
    wrong = "ERR wrong number of arguments for 'command|getkeysandflags' command"
    assert bench.error("COMMAND", "GETKEYSANDFLAGS") == wrong
