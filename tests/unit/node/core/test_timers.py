"""The timers of jobs, compared with a plain list of times."""

from hypothesis import given
from hypothesis import strategies as st

from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.jobs.timers import JobTimers

GRAIN = 32  # ms; a job may be checked this much too late, never too early


def make_job(number: int) -> Job:
    return Job(b"%040d" % number, b"q", b"", 1, number, 0, 0, 0)


actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 3000)),
        st.tuples(st.just("move"), st.integers(1, 3000)),
        st.tuples(st.just("remove"), st.integers(0, 1000)),
        st.tuples(st.just("due"), st.integers(0, 500)),
        st.tuples(st.just("next"), st.just(0)),
    ),
    max_size=150,
)


@given(actions)
def test_timers_are_a_sorted_list_of_times(steps: list[tuple[str, int]]) -> None:
    timers = JobTimers()
    model: dict[Job, int] = {}
    now = 0
    for number, (action, value) in enumerate(steps):
        if action == "add":
            job = make_job(number)
            timers.add(job, now + value)
            model[job] = now + value
        elif action == "move" and model:
            job = list(model)[number % len(model)]
            timers.move(job, now + value)
            model[job] = now + value
        elif action == "remove" and model:
            job = list(model)[value % len(model)]
            timers.remove(job)
            timers.remove(job)  # once more does nothing
            del model[job]
        elif action == "due":
            now += value
            found = timers.due(now, 1_000_000)
            assert len(set(found)) == len(found)
            for job in found:
                assert model.pop(job) <= now
            assert all(awake > now - GRAIN for awake in model.values())
        elif action == "next":
            due = timers.next_due()
            if model:
                earliest = min(model.values())
                assert earliest <= due <= earliest + GRAIN
            else:
                assert due == 0
    for job, awake in model.items():
        assert job.awake == awake


@given(st.lists(st.integers(1, 200), max_size=60), st.integers(1, 10))
def test_a_limit_parts_the_work_and_loses_nothing(times: list[int], limit: int) -> None:
    timers = JobTimers()
    jobs = [make_job(number) for number in range(len(times))]
    for job, awake in zip(jobs, times, strict=True):
        timers.add(job, awake)
    found: list[Job] = []
    while timers.next_due():
        some = timers.due(1000, limit)
        assert 0 < len(some) <= limit
        found += some
    assert sorted(job.id for job in found) == [job.id for job in jobs]
    assert all(job.awake == 0 for job in jobs)


def test_when_more_is_due_than_the_limit_the_next_time_is_past() -> None:
    timers = JobTimers()
    for number in range(10):
        timers.add(make_job(number), 100)
    assert len(timers.due(1000, 4)) == 4
    assert 0 < timers.next_due() <= 1000
    assert len(timers.due(1000, 100)) == 6
    assert timers.next_due() == 0


def test_what_is_due_was_due_at_the_time_that_was_announced() -> None:
    timers = JobTimers()
    job = make_job(1)
    timers.add(job, 1001)
    due = timers.next_due()
    assert timers.due(due - 1, 10) == []
    assert timers.due(due, 10) == [job]


def test_jobs_that_are_handed_over_are_never_due() -> None:
    timers = JobTimers()
    jobs = [make_job(number) for number in range(5)]
    for job in jobs:
        timers.add(job, 100 * (1 + job.ctime))
    buckets = timers.hand_over()
    assert {job for bucket in buckets for job in bucket} == set(jobs)
    assert timers.next_due() == 0
    assert timers.due(10_000, 10) == []
    other = make_job(6)
    timers.add(other, 100)
    assert timers.due(10_000, 10) == [other]
