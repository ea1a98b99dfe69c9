"""Trailers of jobs, as hypothesis makes them, and jobs that have one."""

from hypothesis import strategies as st

from disque_trio.protocol.serialjob import JobWriter
from disque_trio.protocol.trailer import (
    ACKED,
    BY_WORKER,
    CANCELLED,
    DEAD,
    FLAG_TRAILER,
    Ending,
    Letter,
    Trailer,
)

ID = b"D-%b-%b-05a1" % (b"0" * 8, b"a" * 24)
_NUMBERS = st.integers(0, 2**64 - 1)
_TEXT = st.binary(max_size=20)

letters = st.builds(
    Letter,
    st.binary(min_size=40, max_size=40),
    _TEXT,
    st.integers(1, 3),
    _NUMBERS,
    _TEXT,
)
endings = st.one_of(
    st.builds(Ending, st.sampled_from([ACKED, CANCELLED]), _TEXT),
    st.builds(Ending, st.just(DEAD), st.just(b""), _TEXT, _NUMBERS, letters),
)


@st.composite
def trailers(draw: st.DrawFn) -> Trailer:
    """Any trailer of this version, with fields of later ones."""
    trailer = Trailer()
    names = draw(st.lists(st.tuples(_TEXT, _TEXT), max_size=3))
    trailer.headers = [text for pair in names for text in pair]
    trailer.group = draw(_TEXT)
    trailer.key = draw(_TEXT)
    trailer.key_until = draw(_NUMBERS) if trailer.key else 0
    trailer.updated = draw(_NUMBERS)
    trailer.added_to = draw(_TEXT)
    trailer.letter = draw(st.none() | letters)
    trailer.reason = draw(_TEXT)
    nodes = st.binary(min_size=8, max_size=8)
    trailer.attempts = draw(st.dictionaries(nodes, _NUMBERS, max_size=3))
    trailer.ending = draw(st.none() | endings)
    trailer.unknown = draw(st.lists(st.tuples(st.integers(11, 255), _TEXT), max_size=3))
    return trailer


def full_trailer() -> Trailer:
    """One that has all there is."""
    trailer = Trailer()
    trailer.headers = [b"content-type", b"text/plain", b"traceparent", b"00-4bf9-00f0-01"]
    trailer.group = b"tenant 4"
    trailer.key = b"order 17"
    trailer.key_until = 1_800_000_000_000
    trailer.updated = 3
    trailer.added_to = b"old queue"
    trailer.letter = Letter(ID[:-1] + b"3", b"mail", BY_WORKER, 4, b"no such address")
    trailer.reason = b"try later"
    trailer.attempts = {b"0" * 8: 2, b"f" * 8: 1}
    trailer.unknown = [(200, b"of a later version")]
    return trailer


def job_with(
    tail: bytes,
    etime: int,
    holders: list[bytes],
    body: bytes = b"body",
    state: int = 1,
    id: bytes = ID,
) -> bytes:
    """A serialised job that has the flag, with ``tail`` behind its body. ``etime`` is s left on
    the bus, s since the epoch in a file."""
    nodes = b"".join(holders)
    return JobWriter().encode(
        id, state, FLAG_TRAILER, 2, etime, 10**18, 0, 10, 0, 0, b"q", body + tail, nodes
    )
