"""What programs are told of jobs."""

import pytest

from disque_trio.client.shown import ShownJob
from disque_trio.node.commands.job_filter import STATE_NAMES
from disque_trio.node.core.changes import state_counts
from disque_trio.overview.records import STAGES, STATES, due_in, stage_of

NOW = 1_000.0


def job(**fields: object) -> ShownJob:
    shown = {"id": "D-1", "queue": "q", "state": "queued", "retry": 300, "ctime": 990 * 10**9}
    return ShownJob(**shown | fields)  # type: ignore[arg-type]


def test_stages_and_states_have_the_words_of_the_server() -> None:
    assert [stage.encode() for stage in STAGES] == list(state_counts.STAGES)
    assert {state.encode() for state in STATES} == {*state_counts.STAGES, *STATE_NAMES}


@pytest.mark.parametrize(
    ("fields", "stage"),
    [
        ({}, "fresh"),
        ({"nacks": 1}, "retrying"),
        ({"additional_deliveries": 2}, "retrying"),
        ({"nacks": 1, "dead_from": "p"}, "dead"),
        ({"dead_from": "p", "dead_why": "redriven"}, "fresh"),
        ({"state": "active", "client": 7, "nacks": 1}, "running"),
        ({"state": "active", "client": 7, "retry": 0}, "delivered"),
        ({"state": "active", "delay": 60}, "delayed"),
        ({"state": "active", "delay": 5}, "active"),
        ({"state": "acked"}, "acked"),
    ],
)
def test_the_stage_of_what_a_node_tells(fields: dict[str, object], stage: str) -> None:
    assert stage_of(job(**fields), NOW) == stage


def test_a_job_is_due_at_the_first_of_its_times() -> None:
    assert due_in(job(next_awake_within=2_500, next_requeue_within=300_000), NOW) == 2.5
    assert due_in(job(), NOW) is None


def test_a_delayed_job_is_due_after_its_delay_whichever_node_tells() -> None:
    holder = job(state="active", delay=60, next_awake_within=350_000, next_requeue_within=350_000)
    assert due_in(holder, NOW) == 50
