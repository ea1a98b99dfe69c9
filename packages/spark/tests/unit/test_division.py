"""How a batch is divided among nodes and tasks."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from disque_spark.leases.division import divide, divide_all, taken_in_turn

LENGTHS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 50))


@given(LENGTHS, st.integers(1, 200), st.integers(1, 4), st.integers(1, 20), st.integers(0, 9))
def test_a_batch_has_its_jobs_and_its_tasks(
    lengths: dict[str, int], limit: int, per_node: int, least: int, turn: int
) -> None:
    plans = divide(lengths, limit, per_node, least, 0, turn)
    jobs, total = sum(plan.limit for plan in plans), sum(lengths.values())
    assert {plan.address for plan in plans} <= {name for name, length in lengths.items() if length}
    assert all(plan.limit > 0 for plan in plans)
    assert min(limit, total) <= jobs <= limit if total else not plans
    shares = Counter[str]()
    for plan in plans:
        shares[plan.address] += plan.limit
    if limit < total:
        assert all(shares[name] <= length for name, length in lengths.items())
    if all(share >= least for share in shares.values()) and plans:
        assert len(plans) >= least
    tasks = Counter(plan.address for plan in plans)
    assert all(tasks[name] >= min(per_node, share) for name, share in shares.items())


def test_with_fewer_jobs_a_batch_than_nodes_each_node_has_its_turn() -> None:
    lengths = {"a": 100, "b": 100, "c": 100}
    given = Counter(divide(lengths, 1, turn=turn)[0].address for turn in range(6))
    assert given == {"a": 2, "b": 2, "c": 2}
    # Even one with so few jobs that its share would be zero.
    uneven = {"a": 1000, "b": 1}
    assert {plan.address for turn in range(2) for plan in divide(uneven, 10, turn=turn)} == {*"ab"}


def test_tasks_are_divided_as_jobs_are() -> None:
    plans = divide({"a": 300, "b": 100}, 400, least=8)
    assert Counter(plan.address for plan in plans) == {"a": 6, "b": 2}
    assert {plan.limit for plan in plans} == {50}
    assert len(divide({"a": 3}, 100, least=8)) == 8  # it may have more by now


def test_bytes_are_divided_as_jobs_are() -> None:
    plans = divide({"a": 30, "b": 10}, 20, size=1000)
    assert [(plan.limit, plan.size) for plan in plans] == [(15, 750), (5, 250)]
    assert {plan.size for plan in divide({"a": 30}, 20)} == {0}
    assert {plan.size for plan in divide({"a": 30}, 20, per_node=20, size=3)} == {1}


def test_all_that_is_there_is_divided_between_the_nodes() -> None:
    assert len(divide_all(["a", "b"], 1, 5)) == 6
    assert [(plan.limit, plan.size) for plan in divide_all(["a", "b"], size=9)] == [(0, 4), (0, 4)]
    assert divide_all([], 1, 5, 9) == []


def one_by_one(lengths: dict[str, int], limit: int) -> dict[str, int]:
    taken = dict.fromkeys(lengths, 0)
    left = limit or sum(lengths.values())
    while left and any(taken[name] < lengths[name] for name in lengths):
        for name in lengths:
            if left and taken[name] < lengths[name]:
                taken[name] += 1
                left -= 1
    return taken


@given(LENGTHS, st.integers(0, 200))
def test_queues_give_a_job_each_in_turn(lengths: dict[str, int], limit: int) -> None:
    assert taken_in_turn(lengths, limit) == one_by_one(lengths, limit)
