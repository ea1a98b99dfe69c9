"""Which bindings match a topic, and the file that stores them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.node.core.shared.binding_words import format_file, parse_file
from disque_trio.node.core.shared.bindings import _CACHED, MAX_TOPIC, Binding, Bindings
from disque_trio.node.core.shared.versions import Entry

A, B = b"a" * 40, b"b" * 40


def bound(*topics: bytes) -> Bindings:
    """Bind each of ``topics`` to a queue of the same name."""
    bindings = Bindings()
    for clock, topic in enumerate(topics, 1):
        bindings.put(Entry(topic + b" " + topic, Binding(topic, topic), clock, A, 0))
    return bindings


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        (b"mail.new", [b"mail.new"], [b"mail", b"mail.new.x", b"mail.old", b"Mail.new"]),
        (b"mail.*", [b"mail.new", b"mail.", b"mail.*"], [b"mail", b"mail.new.x", b"new.mail"]),
        (b"*.new", [b"mail.new", b".new"], [b"new", b"a.mail.new"]),
        (b"mail.#", [b"mail", b"mail.new", b"mail.new.x", b"mail.#"], [b"news", b"new.mail"]),
        (b"#.new", [b"new", b"mail.new", b"a.b.new"], [b"new.mail"]),
        (b"#", [b"mail", b"a.b.c", b"."], []),
        (b"*", [b"mail", b"*"], [b"a.b", b"."]),
        (b"#.*", [b"a", b"a.b"], []),
        (b"a.#.b.#.c", [b"a.b.c", b"a.x.b.y.z.c", b"a.b.b.c.c"], [b"a.c", b"a.b", b"a.c.b"]),
        (b"#.#", [b"a", b"a.b.c"], []),
        (b"a.*.#", [b"a.b", b"a.b.c"], [b"a"]),
        (b"ma*.#new", [b"ma*.#new"], [b"mail.new", b"mail.xnew"]),
    ],
)
def test_a_pattern_matches(pattern: bytes, matches: list[bytes], others: list[bytes]) -> None:
    bindings = bound(pattern)
    assert [topic for topic in matches if not bindings.queues_of(topic)] == []
    assert [topic for topic in others if bindings.queues_of(topic)] == []


@pytest.mark.parametrize("users", [False, True])
def test_topics_that_nobody_is_bound_to_are_not_all_remembered(users: bool) -> None:
    bindings = bound(b"mail")
    for number in range(_CACHED + 10):
        topic = b"%d" % number
        assert not (bindings.users_of(topic) if users else bindings.queues_of(topic))
    assert len(bindings._users) + len(bindings._cache) <= _CACHED + 1


WORDS = st.sampled_from([b"a", b"b", b"*", b"#", b""])
TOPICS = st.lists(WORDS, min_size=1, max_size=5).map(b".".join).filter(bool)


def expression(topic: bytes) -> bytes:
    """Return a regular expression for what ``topic`` matches, with a dot after each word."""
    parts = {b"*": rb"[^.]*\.", b"#": rb"([^.]*\.)*"}
    words = topic.split(b".")
    return b"".join(parts.get(word, re.escape(word + b".")) for word in words)


@given(st.lists(TOPICS, max_size=8), st.lists(TOPICS, max_size=8), TOPICS)
def test_what_matches_is_what_amqp_says(
    topics: list[bytes], deleted: list[bytes], topic: bytes
) -> None:
    bindings = bound(*topics)
    for pattern in deleted:
        bindings.queues_of(topic)  # the cache is now out of date
        bindings.put(Entry(pattern + b" " + pattern, None, 99, A, 1))
    found = {t for t in topics if t not in deleted and re.fullmatch(expression(t), topic + b".")}
    assert bindings.queues_of(topic) == sorted(found)
    assert {one.topic for one in bindings.matching(topic)} == found


@given(st.lists(TOPICS, unique=True))
def test_where_all_are_deleted_nothing_is_left(topics: list[bytes]) -> None:
    bindings = bound(*topics)
    for pattern in topics:
        bindings.put(Entry(pattern + b" " + pattern, None, 99, A, 1))
    bindings.forget_deleted(2)
    assert bindings.entries == {}
    assert bindings._root.next == {}


def test_a_change_that_is_taken_back_leaves_what_was_there() -> None:
    bindings = bound(b"a.*")
    old = bindings.entries[b"a.* a.*"]
    deletion = bindings.make(b"a.* a.*", None, A, 1)
    bindings.put(deletion)
    assert bindings.queues_of(b"a.b") == []
    bindings.undo(deletion, old)
    assert bindings.queues_of(b"a.b") == [b"a.*"]


def test_of_two_changes_the_later_one_counts_in_any_order() -> None:
    bind = Entry(b"t q", Binding(b"t", b"q"), 5, A, 0)
    unbind = Entry[Binding](b"t q", None, 5, B, 1)
    for changes in ([bind, unbind], [unbind, bind]):
        bindings = Bindings()
        for entry in changes:
            bindings.put(entry)
        assert bindings.queues_of(b"t") == []
        assert bindings.count == 0


# ---- the file -----------------------------------------------------------------------------------

QUEUES = st.binary(min_size=1, max_size=20).filter(lambda name: name[:1] != b"@")


@given(st.lists(st.tuples(TOPICS, QUEUES, st.integers(0, 2**48), st.booleans())))
def test_what_is_written_is_read_again(found: list[tuple[bytes, bytes, int, bool]]) -> None:
    first, second, third = Bindings(), Bindings(), Bindings()
    for topic, queue, clock, there in found:
        binding = Binding(topic, queue)
        first.put(Entry(binding.name, binding if there else None, clock, A, 0 if there else 7))
    text = b"".join(format_file(first))
    assert parse_file(text, second) == []
    for entry in first.entries.values():
        third.put(third.read_entry(entry.fields()))
    assert second.digest == first.digest == third.digest
    assert b"".join(format_file(second)) == text
    assert text.isascii()


def test_nothing_is_written_of_nothing() -> None:
    assert b"".join(format_file(Bindings())) == b""


@pytest.mark.parametrize(
    "line",
    [
        b"binding 1 %b" % A,
        b"binding 1 %b mail" % A,
        b'binding 1 %b "mail @q"' % A,
        b'binding 1 %b "mail "' % A,
        b'binding 1 %b "%b q"' % (A, b"x" * (MAX_TOPIC + 1)),
        b'binding 1 %b "mail q" more' % A,
        b'binding x %b "mail q"' % A,
        b'schedule 1 %b "mail q"' % A,
    ],
)
def test_a_wrong_line_is_skipped(line: bytes) -> None:
    bindings = Bindings()
    (skipped,) = parse_file(b'clock 3\n%b\nbinding 1 %b "t q"' % (line, A), bindings)
    assert skipped.startswith("line 2: ")
    assert (bindings.clock, bindings.queues_of(b"t")) == (3, [b"q"])
