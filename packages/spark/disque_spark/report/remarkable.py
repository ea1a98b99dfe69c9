"""Selects the queues that stand out among many."""

from collections.abc import Mapping, Sequence
from typing import Any

ORDERS = ("jobs", "most_depth", "wait_p99", "processing_p99", "found", "retries", "nacks")


def remarkable(queues: Sequence[Mapping[str, Any]], most: int) -> list[str]:
    """Names of up to ``most`` queues: the first by each order, taken from all orders in turn."""

    def first_by(name: str) -> list[Mapping[str, Any]]:
        return sorted((row for row in queues if row.get(name)), key=lambda row: -row[name])

    orders = [first_by(name) for name in ORDERS]
    chosen: dict[str, None] = {}
    for place in range(len(queues)):
        for order in orders:
            if place < len(order) and len(chosen) < most:
                chosen.setdefault(order[place]["queue"])
    return list(chosen)
