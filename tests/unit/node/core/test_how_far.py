"""How far a worker is with its job, as it says with WORKING."""

import pytest

from tests.support.node_bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def said(bench: Bench, id: bytes) -> tuple[object, object]:
    fields = bench("SHOW", id)
    assert isinstance(fields, list)
    known = dict(zip(fields[::2], fields[1::2], strict=True))
    return known.get(b"progress"), known.get(b"progress-text")


def test_a_node_shows_how_far_the_worker_of_a_job_is(bench: Bench) -> None:
    ids = [bench.add("q", "b", "RETRY", 10) for _ in range(2)]
    assert len(bench.get_all()) == 2
    assert said(bench, ids[0]) == (None, None)
    assert bench("WORKING", ids[0], "PROGRESS", "0.40", "page 4 of 10") == 10
    assert said(bench, ids[0]) == (b"0.4", b"page 4 of 10")
    assert said(bench, ids[1]) == (None, None)
    bench.advance(9)
    assert bench("WORKING", ids[0]) == 10
    assert said(bench, ids[0]) == (b"0.4", b"page 4 of 10")
    assert bench("working", ids[0], "progress", "1", "") == 10
    assert said(bench, ids[0]) == (b"1", b"")
    assert bench("NACK", ids[0]) == 1
    assert said(bench, ids[0]) == (None, None)
    assert ids[0] in bench.get_all()
    assert said(bench, ids[0]) == (None, None)


def test_jobs_that_are_delivered_at_most_once_have_progress_too(bench: Bench) -> None:
    id = bench.add("q", "b", "RETRY", 0)
    assert bench("WORKING", id, "PROGRESS", 0, "not begun") == 0
    assert said(bench, id) == (None, None)
    assert bench.get_all() == [id]
    assert bench("WORKING", id, "PROGRESS", 0, "begun") == 0
    assert said(bench, id) == (b"0", b"begun")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["PROGRESS"], "ERR syntax error"),
        (["PROGRESS", "0.5"], "ERR syntax error"),
        (["PROGRESS", "0.5", "a", "b"], "ERR syntax error"),
        (["FAR", "0.5", ""], "ERR syntax error"),
        (["PROGRESS", "half", ""], "ERR PROGRESS must be a number from 0 to 1"),
        (["PROGRESS", "nan", ""], "ERR PROGRESS must be a number from 0 to 1"),
        (["PROGRESS", "1.1", ""], "ERR PROGRESS must be a number from 0 to 1"),
        (["PROGRESS", "1", "x" * 201], "ERR the text of PROGRESS has 200 bytes at most"),
    ],
)
def test_wrong_words_are_refused(bench: Bench, words: list[str], error: str) -> None:
    id = bench.add("q", "b")
    assert bench.get_all() == [id]
    assert bench.error("WORKING", id, *words).lstrip("-").startswith(error)
    assert said(bench, id) == (None, None)
