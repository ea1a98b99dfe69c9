"""Which slots of a worker process serve which queues."""

from disque_trio.worker.round_robin import QueueWeight
from disque_trio.worker.slots import orders_of

QUEUES = [QueueWeight("mail", 1), QueueWeight("pictures", 5), QueueWeight("films", 1)]
CPU = {"pictures", "films"}


def served(
    apart: set[str], count: int, places: int, queues: list[QueueWeight] = QUEUES
) -> list[tuple[int, list[tuple[str, ...]]]]:
    found = orders_of(queues, count, apart, places, strict=False)
    return [(count, sorted(order.orders)) for count, order in found]


EACH = [
    ("films", "pictures", "mail"),
    ("mail", "pictures", "films"),
    ("pictures", "mail", "films"),
]


def test_all_slots_serve_all_queues_if_their_tasks_run_here() -> None:
    assert served(set(), 8, 2) == [(8, EACH)]


def test_as_many_slots_as_there_are_processes_serve_queues_of_tasks_that_run_there() -> None:
    assert served(CPU, 8, 2) == [
        (2, [("films", "pictures", "mail"), ("pictures", "films", "mail")]),
        (6, [("mail",)]),
    ]


def test_a_slot_of_a_worker_with_more_processes_than_slots_serves_all() -> None:
    assert served(CPU, 2, 2) == [(2, EACH)]


def test_no_more_slots_than_processes_take_jobs_if_there_are_no_others() -> None:
    only = QUEUES[1:]
    assert served(CPU, 8, 2, only) == [(2, [("films", "pictures"), ("pictures", "films")])]


def test_a_strict_order_holds_for_the_queues_of_either_kind() -> None:
    found = orders_of(QUEUES, 3, CPU, 1, strict=True)
    orders = [(count, order.orders) for count, order in found]
    assert orders == [(1, [("pictures", "films", "mail")]), (2, [("mail",)])]
