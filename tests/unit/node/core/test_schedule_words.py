"""The file of schedules reads back as written; damage is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.node.core.shared.schedule_words import format_file, parse_file, read_schedule
from disque_trio.node.core.shared.schedules import Schedule, Schedules
from disque_trio.node.core.shared.versions import Entry

A, B = b"a" * 40, b"b" * 40
NAMES = st.binary(min_size=1, max_size=20)
TEXTS = st.binary(max_size=20)


# Hypothesis cannot hold a compiled Entry.
Parts = tuple[bytes, Schedule | None, int, bytes, int, int]


@st.composite
def entries(draw: st.DrawFn) -> Parts:
    """Draw the arguments of an Entry."""
    name = draw(NAMES)
    version = (draw(st.integers(0, 2**48)), draw(st.sampled_from([A, B])))
    reached = draw(st.integers(0, 2**48))
    if draw(st.booleans()):
        return (name, None, *version, draw(st.integers(0, 2**62)), reached)
    words = (draw(TEXTS), draw(TEXTS), draw(st.integers(0, 3)), draw(TEXTS), draw(TEXTS))
    schedule = Schedule(name, *words, draw(st.lists(TEXTS, max_size=3)))
    return (name, schedule, *version, 0, reached)


@given(st.lists(entries()))
def test_what_is_written_is_read_again(found: list[Parts]) -> None:
    first, second = Schedules(), Schedules()
    for parts in found:
        first.put(Entry(*parts))
    text = b"".join(format_file(first))
    assert parse_file(text, second) == []
    assert second.digest == first.digest
    assert second.clock == first.clock
    assert b"".join(format_file(second)) == text
    assert text.isascii()


@given(entries())
def test_what_is_sent_is_the_same_there(parts: Parts) -> None:
    entry = Entry(*parts)
    read = Schedules().read_entry(entry.fields())
    assert read.fields() == entry.fields()
    assert read.digest() == entry.digest()


def test_nothing_is_written_of_nothing() -> None:
    assert b"".join(format_file(Schedules())) == b""


GOOD = b'schedule 1 %b s "@every 9s" "" 0 q body RETRY 5' % A


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"schedule", "expected clock"),
        (b"rubbish", "expected clock"),
        (b'schedule 1 %b "s' % A, "quote"),
        (b"schedule 1 %b s a b 0 q" % A, "needs times"),
        (GOOD.replace(b" 0 ", b" 4 "), "number"),
        (GOOD.replace(b" 0 ", b" x "), "number"),
        (GOOD.replace(A, b"x" * 40), "id of a node"),
        (GOOD + b"\n" + GOOD, "twice"),
        (b"reached s 5", "no schedule"),
        (GOOD + b"\nreached s x", "number"),
        (b"reached s", "expected clock"),
        (b"node %b 1" % A, "expected clock"),
    ],
)
def test_a_bad_line_is_skipped_and_named(line: bytes, problem: str) -> None:
    schedules = Schedules()
    after = GOOD.replace(b" s ", b" after ")
    (skipped,) = parse_file(b"# comment\n" + line + b"\n" + after, schedules)
    assert skipped.startswith(("line 2: ", "line 3: "))
    assert problem in skipped
    assert schedules.named(b"after") is not None


@given(st.binary(max_size=200))
def test_rubbish_is_read_or_skipped(text: bytes) -> None:
    parse_file(text, Schedules())


def test_headers_may_be_named_like_options_even_where_they_come_first() -> None:
    headers = [b"HEADERS", b"2", b"TZ", b"x", b"CATCHUP", b"y"]
    schedule = read_schedule(b"tick", [b"@hourly", b"q", b"job", *headers])
    assert (schedule.zone, schedule.flags, schedule.options) == (b"", 0, headers)
