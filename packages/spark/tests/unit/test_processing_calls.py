"""What a function's return value says about each job."""

from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

from disque_spark.processing.calls import in_frames, singly
from disque_spark.processing.job import MAX_REASON, Failed, Job, Outcome, body_of

JOBS = [Job(f"id{n}", "q", b"%d" % n) for n in range(5)]


def results(function: Callable[[pd.DataFrame], object]) -> list[bytes | str | None]:
    outcomes = list(in_frames(function, JOBS))
    assert [outcome.job for outcome in outcomes] == JOBS
    assert not any(outcome.failed for outcome in outcomes)
    return [outcome.result for outcome in outcomes]


def reasons(function: Callable[[pd.DataFrame], object]) -> dict[str, str]:
    outcomes = list(in_frames(function, JOBS))
    return {outcome.job.id: outcome.failed.reason for outcome in outcomes if outcome.failed}


def test_a_job_that_raises_leaves_the_others_alone() -> None:
    def function(job: Job) -> object:
        return 1 / (int(job.text()) - 2)

    outcomes = list(singly(function, JOBS))
    assert [outcome.result for outcome in outcomes] == ["-0.5", "-1.0", None, "1.0", "0.5"]
    [failed] = [outcome.failed for outcome in outcomes if outcome.failed]
    assert (failed.reason, failed.delay) == ("ZeroDivisionError: division by zero", None)


@pytest.mark.parametrize("delay", [-1, float("nan"), 1e300])
def test_a_delay_that_no_node_takes_is_an_error_of_the_function(delay: float) -> None:
    def function(job: Job) -> object:
        raise Failed(KeyError("x"), delay)

    [outcome] = singly(function, JOBS[:1])
    assert outcome.failed is not None
    assert outcome.failed.text().startswith(b"ValueError: delay: expected 0 to")


def test_a_reason_may_be_an_exception() -> None:
    assert Failed(KeyError("x")).text() == b"'x'"


def test_a_job_that_somebody_has_done_is_left_out() -> None:
    gone = {"id1"}
    outcomes = singly(lambda job: gone.add("id3"), JOBS, gone=lambda job: job.id in gone)
    assert [outcome.job.id for outcome in outcomes] == ["id0", "id2", "id4"]


@pytest.mark.parametrize(
    ("value", "body"),
    [
        (None, None),
        ("text", "text"),
        (b"\xff", b"\xff"),
        (bytearray(b"x"), b"x"),
        ({"score": np.float32(0.5), "at": datetime(2026, 1, 2, tzinfo=UTC)}, None),
        ([1, "é"], '[1, "é"]'),
        (np.arange(3), "[0, 1, 2]"),
        (True, "true"),
    ],
)
def test_results_become_bodies(value: object, body: object) -> None:
    if isinstance(value, dict):
        body = '{"score": 0.5, "at": "2026-01-02T00:00:00+00:00"}'
    assert body_of(value) == body


@pytest.mark.parametrize("value", [object(), float("nan"), {"a": {1}}])
def test_a_result_that_cannot_be_sent_fails_its_job(value: object) -> None:
    [outcome] = singly(lambda job: value, JOBS[:1])
    assert outcome.failed is not None
    assert outcome.failed.reason.startswith("result: ")


@pytest.mark.parametrize(
    "function",
    [
        lambda frame: frame["body"],
        lambda frame: list(frame["body"]),
        lambda frame: frame["body"].to_numpy(),
        lambda frame: pd.concat([frame["body"][:2], frame["body"][2:]], ignore_index=True),
        lambda frame: pd.concat([frame["body"][:2], frame["body"][2:].reset_index(drop=True)]),
    ],
)
def test_a_frame_gives_a_result_for_each_row(function: Callable[[pd.DataFrame], object]) -> None:
    assert results(function) == [job.body for job in JOBS]


def test_a_frame_without_results_becomes_json_objects() -> None:
    made = results(lambda frame: pd.DataFrame({"n": frame["body"].astype(int), "half": None}))
    assert made == [f'{{"n": {n}, "half": null}}' for n in range(5)]
    assert results(lambda frame: frame.assign(n=1)) == ['{"n": 1}'] * 5
    assert results(lambda frame: frame) == [None] * 5


def test_missing_values_are_not_results() -> None:
    assert results(lambda frame: None) == [None] * 5
    assert results(lambda frame: pd.Series([1.5, None, 2.5, None, 3.5]))[1:4:2] == [None, None]


def test_where_no_results_are_wanted_they_may_be_anything() -> None:
    assert list(singly(lambda job: object(), JOBS[:1], wanted=False)) == [Outcome(JOBS[0])]
    outcomes = list(in_frames(len, JOBS, wanted=False))
    assert outcomes == [Outcome(job) for job in JOBS]
    [failed, done] = in_frames(lambda frame: [Failed("no"), object()], JOBS[:2], wanted=False)
    assert (failed.failed is None, done.failed) == (False, None)


def test_rows_can_fail_by_themselves() -> None:
    def marked(frame: pd.DataFrame) -> object:
        return [Failed("not this", delay=1) if body == b"3" else body for body in frame["body"]]

    assert reasons(marked) == {"id3": "not this"}


def test_rows_that_break_a_frame_are_found() -> None:
    def function(frame: pd.DataFrame) -> object:
        if set(frame["body"]) & {b"1", b"4"}:
            raise KeyError("no")
        return frame["body"]

    outcomes = list(in_frames(function, JOBS))
    assert [outcome.job for outcome in outcomes] == JOBS
    assert reasons(function) == {"id1": "KeyError: 'no'", "id4": "KeyError: 'no'"}
    assert [o.result for o in outcomes if not o.failed] == [b"0", b"2", b"3"]


def test_too_few_results_are_those_of_the_jobs_that_have_none() -> None:
    assert reasons(lambda frame: frame["body"][frame["body"] != b"2"]) == {
        "id2": "ValueError: the function returned 0 results for 1 jobs"
    }
    assert set(reasons(lambda frame: "text")) == {job.id for job in JOBS}


def test_a_reason_fits_into_a_nack() -> None:
    assert len(Failed("é" * 5000).text()) <= MAX_REASON
    assert Failed.of(ValueError()).reason == "ValueError"
    assert Outcome(JOBS[0]).failed is None
