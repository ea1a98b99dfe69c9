"""Argument hints, completion words, the command table and help."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.cli.commandtable import CommandDoc, built_in_table, table_from_docs
from disque_trio.cli.help import help_text
from disque_trio.cli.hints import hint, words
from disque_trio.cli.resp import read_reply

ADDJOB = "queue job ms-timeout [REPLICATE count] [DELAY seconds] [MAXLEN count] [ASYNC]"
GETJOB = "[NOHANG] [TIMEOUT ms] [COUNT count] FROM queue [queue ...]"
PAUSE = "queue option [option ...]  (in, out, all, none, state, bcast)"
CONFIG = "GET pattern [...] | SET name value [...] | REWRITE | RESETSTAT"
JSCAN = "[cursor] [COUNT count] [STATE state [STATE state ...]] [REPLY all|id]"


@pytest.mark.parametrize(
    ("syntax", "typed", "expected"),
    [
        (ADDJOB, "", ADDJOB),
        (ADDJOB, "q", "job ms-timeout [REPLICATE count] [DELAY seconds] [MAXLEN count] [ASYNC]"),
        (ADDJOB, "q delay 0", "[REPLICATE count] [DELAY seconds] [MAXLEN count] [ASYNC]"),
        (ADDJOB, "q b 0 DELAY", "seconds [REPLICATE count] [MAXLEN count] [ASYNC]"),
        (ADDJOB, "q b 0 delay 5", "[REPLICATE count] [MAXLEN count] [ASYNC]"),
        (ADDJOB, "q b 0 ASYNC", "[REPLICATE count] [DELAY seconds] [MAXLEN count]"),
        (GETJOB, "timeout", "ms [NOHANG] [COUNT count] FROM queue [queue ...]"),
        (GETJOB, "timeout 5 from", "queue [queue ...]"),
        (GETJOB, "from q", "[queue ...]"),
        (GETJOB, "from q r s", "[queue ...]"),
        (PAUSE, "q", "option [option ...]"),
        (CONFIG, "", CONFIG),
        (CONFIG, "set", "name value [...]"),
        (CONFIG, "rewrite", ""),
        (JSCAN, "0 REPLY all", "[COUNT count] [STATE state [STATE state ...]]"),
        ("id [id ...]", "D-1 D-2", "[id ...]"),
        ("", "x", ""),
    ],
)
def test_the_hint_shows_the_arguments_still_to_come(syntax: str, typed: str, expected: str) -> None:
    assert hint(syntax, typed.split()) == expected


def test_the_words_of_a_syntax_are_those_typed_as_they_are() -> None:
    assert words(ADDJOB) == ["REPLICATE", "DELAY", "MAXLEN", "ASYNC"]
    assert words(PAUSE) == ["in", "out", "all", "none", "state", "bcast"]
    assert words(CONFIG) == ["GET", "SET", "REWRITE", "RESETSTAT"]
    assert words(JSCAN) == ["COUNT", "STATE", "REPLY"]


def test_the_words_are_those_that_may_come_next() -> None:
    assert words(JSCAN, ["0", "reply"]) == ["all", "id"]
    assert words(JSCAN, ["COUNT"]) == []
    assert words(CONFIG, ["get"]) == []
    assert words("LIST [TYPE type] | KILL address | KILL [ID id]", ["kill"]) == ["ID"]
    assert words("queue CREDIT count | STOP", ["q"]) == ["CREDIT", "STOP"]


@pytest.mark.parametrize(
    "syntax", ["a syntax [of another server", "[...]", "a [] b", "] | ", "[" * 3000 + "]" * 3000]
)
@pytest.mark.parametrize("typed", [[], ["a"], ["a", "b", "c"]])
def test_a_syntax_that_cannot_be_read_gives_no_hint(syntax: str, typed: list[str]) -> None:
    assert hint(syntax, typed) == ""
    assert words(syntax, typed) == []


@given(
    st.lists(st.sampled_from(["[", "]", "...", "|", "a", "B", "x|y", "(in, out)"])),
    st.lists(st.sampled_from("aBx5")),
)
def test_no_syntax_of_a_server_is_too_strange(parts: list[str], typed: list[str]) -> None:
    syntax = " ".join(parts)
    assert isinstance(hint(syntax, typed), str)
    assert isinstance(words(syntax, typed), list)


def test_hints_and_words_exist_for_every_command_of_the_node() -> None:
    table = built_in_table()
    assert "addjob" in table
    for doc in table.values():
        assert all(word.strip() == word for word in words(doc.syntax))
        for count in range(5):
            hint(doc.syntax, ["x"] * count)


@pytest.mark.parametrize(
    "docs",
    [
        b"*2\r\n+addjob\r\n*6\r\n+summary\r\n+Add.\r\n+group\r\n+jobs\r\n+syntax\r\n+queue job\r\n",
        b"%1\r\n+ADDJOB\r\n%3\r\n+summary\r\n+Add.\r\n+group\r\n+jobs\r\n+syntax\r\n+queue job\r\n",
    ],
)
def test_command_docs_are_read_in_both_protocols(docs: bytes) -> None:
    table = table_from_docs(read_reply(io.BytesIO(docs)))
    assert table == {"addjob": CommandDoc("addjob", "queue job", "Add.", "jobs")}


def test_an_error_in_place_of_command_docs_is_an_empty_table() -> None:
    assert table_from_docs(read_reply(io.BytesIO(b"-ERR unknown\r\n"))) == {}


def test_help_shows_a_command_a_group_or_what_there_is() -> None:
    table = {
        "addjob": CommandDoc("addjob", "queue job", "Add a job.", "jobs"),
        "qlen": CommandDoc("qlen", "queue", "Length.", "queues"),
    }
    assert "ADDJOB queue job\n  summary: Add a job.\n  group: jobs\n" in help_text(
        table, ["AddJob"]
    )
    assert "QLEN" in help_text(table, ["@queues"])
    assert "ADDJOB" not in help_text(table, ["@queues"])
    assert "help @jobs" in help_text(table, [])
    assert 'No help for "nope"' in help_text(table, ["nope"])
