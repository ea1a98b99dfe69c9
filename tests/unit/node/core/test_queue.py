"""The order of a queue, whatever enters and leaves it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.node.core.jobs.job import Job, priority_flags, priority_of
from disque_trio.node.core.queues.queue import Queue


def make_job(ctime: int, number: int, priority: int = 0) -> Job:
    job = Job(b"%040d" % number, b"q", b"", 1, ctime, 0, 0, 0)
    job.flags |= priority_flags(priority)
    return job


def order(job: Job) -> tuple[int, int, bytes]:
    return -priority_of(job), job.ctime, job.id


# What to do next: add a job with this creation time and a priority of 7, 6 or usually 0, take the
# first job, or remove the n-th.
actions = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 40)),
        st.tuples(st.just("pop"), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 1000)),
    ),
    max_size=200,
)


@given(st.lists(st.integers(0, 1000), max_size=30), actions)
def test_a_queue_is_a_sorted_list(prefix: list[int], steps: list[tuple[str, int]]) -> None:
    queue = Queue(b"q", 0)
    model: list[Job] = []
    number = 0
    for action, value in [("push", ctime) for ctime in prefix] + steps:
        if action == "push":
            number += 1
            job = make_job(value, number * 7919 % 1000, max(0, value % 12 - 4))
            if order(job) in map(order, model):
                continue
            queue.push(job)
            model.append(job)
            model.sort(key=order)
        elif not model:
            continue
        elif action == "pop":
            assert queue.pop() is model.pop(0)
        else:
            queue.remove(model.pop(value % len(model)))
        assert queue.length == len(model)
    assert list(queue.first_to_last()) == model
    assert list(queue.last_to_first()) == model[::-1]
    assert queue.jobs_in - queue.jobs_out == len(model)


@pytest.mark.parametrize("seed", range(5))
def test_a_queue_of_thousands_keeps_its_order(seed: int) -> None:
    urgent = random.Random(seed).choices([0, 3, 7], [10, 1, 1], k=1500)
    jobs = [make_job(ctime, ctime, priority) for ctime, priority in enumerate(urgent)]
    jobs.sort(key=order)
    shuffled = jobs[:]
    random.Random(seed).shuffle(shuffled)
    queue = Queue(b"q", 0)
    for job in shuffled:
        queue.push(job)
    assert list(queue.first_to_last()) == jobs
    for job in shuffled[:700]:
        queue.remove(job)
    removed = set(shuffled[:700])
    assert list(queue.first_to_last()) == [job for job in jobs if job not in removed]
    for job in reversed(shuffled[:700]):
        queue.push(job)
    assert [queue.pop() for _ in jobs] == jobs
    assert queue.length == 0


def test_jobs_of_one_time_stand_in_the_order_of_their_ids() -> None:
    queue = Queue(b"q", 0)
    jobs = [make_job(5, number) for number in range(20)]
    for job in reversed(jobs):
        queue.push(job)
    assert [queue.pop() for _ in jobs] == jobs


def test_clearing_counts_the_jobs_as_out() -> None:
    queue = Queue(b"q", 0)
    for number in range(3):
        queue.push(make_job(number, number))
    queue.hand_over()
    assert (queue.length, queue.jobs_in, queue.jobs_out) == (0, 3, 3)
    assert list(queue.first_to_last()) == []


def test_looking_at_the_first_jobs_does_not_collect_all() -> None:
    queue = Queue(b"q", 0)
    for number in range(3):
        queue.push(make_job(number, number))
    jobs = queue.first_to_last()
    next(jobs)
    queue.push(make_job(3, 3))
    assert len(list(jobs)) == 3
