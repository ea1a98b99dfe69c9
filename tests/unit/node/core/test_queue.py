"""The order of a queue, whatever goes in and out of it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.node.core.job import Job
from disque_trio.node.core.queue import Queue


def make_job(ctime: int, number: int) -> Job:
    return Job(b"%040d" % number, b"q", b"", 1, ctime, 0, 0, 0)


def order(job: Job) -> tuple[int, bytes]:
    return job.ctime, job.id


# What to do next: put a job with this creation time in, take the first, or remove the n-th.
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
            job = make_job(value, number * 7919 % 1000)
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
    assert list(queue.oldest_first()) == model
    assert list(queue.newest_first()) == model[::-1]
    assert queue.jobs_in - queue.jobs_out == len(model)


@pytest.mark.parametrize("seed", range(5))
def test_a_queue_of_thousands_keeps_its_order(seed: int) -> None:
    jobs = [make_job(ctime, ctime) for ctime in range(1500)]
    shuffled = jobs[:]
    random.Random(seed).shuffle(shuffled)
    queue = Queue(b"q", 0)
    for job in shuffled:
        queue.push(job)
    assert list(queue.oldest_first()) == jobs
    for job in shuffled[:700]:
        queue.remove(job)
    removed = set(shuffled[:700])
    assert list(queue.oldest_first()) == [job for job in jobs if job not in removed]
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
    assert list(queue.oldest_first()) == []
