"""The shop of ``examples/shop``: each order is done and charged once, whatever happens to the
workers, the nodes and the outbox while orders come in."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.support.harness import free_port, start_process, wait_for_ping, wait_until
from tests.support.live_cluster import Member, live_cluster
from tests.support.shop import Shop, open_shop

ON_DISK = ("--appendonly", "yes", "--appendfsync", "always")


def test_orders_are_done_although_workers_the_outbox_and_the_node_are_replaced_and_killed(
    tmp_path: Path,
) -> None:
    port = free_port()
    options = ("--port", str(port), *ON_DISK)
    node = start_process(tmp_path, port, *options)
    assert wait_for_ping(node)
    try:
        with open_shop(tmp_path, [port]) as shop:
            shop.order(4)
            shop.replace_worker(0)
            shop.order(4)
            wait_until(partial(shop.reaches, 2))
            shop.kill_process(0)
            shop.kill_outbox()
            shop.order(4)
            wait_until(partial(shop.reaches, 6))
            shop.kill(node.kill)
            node = start_process(tmp_path, port, *options)
            shop.order(4)
            wait_until(shop.all_sent)
            shop.judge()
    finally:
        node.close()


ORDERS, PER_SECOND = 120, 3
DONE_SECONDS = 20.0
"""All orders are done this long after the last one."""


def order_steadily(shop: Shop) -> float:
    """Order at an even rate; returns when the last order was taken."""
    began = time.monotonic()
    for number in range(ORDERS):
        due = began + number / PER_SECOND
        wait_until(partial(is_over, due))
        shop.order(1)
    return time.monotonic()


def is_over(moment: float) -> bool:
    return time.monotonic() >= moment


@pytest.mark.nightly
@pytest.mark.load
def test_orders_are_done_soon_although_all_nodes_and_workers_are_restarted_and_some_killed(
    tmp_path: Path,
) -> None:
    with (
        live_cluster(tmp_path, 3, *ON_DISK, node_timeout=5000) as cluster,
        ThreadPoolExecutor(1) as customers,
        open_shop(tmp_path, [node.port for node in cluster], workers=2) as shop,
    ):

        def restart(number: int, end: Callable[[Member], object]) -> None:
            end(cluster[number])
            cluster[number].start()
            cluster.wait_joined()

        changes: list[Callable[[], object]] = [
            *(partial(shop.replace_worker, number) for number in (0, 1)),
            *(partial(restart, number, Member.stop) for number in (0, 1, 2)),
            partial(shop.kill_process, 0),
            shop.kill_outbox,
            partial(restart, 1, lambda node: shop.kill(node.kill)),
            partial(shop.kill_worker, 1),
        ]
        ordering = customers.submit(order_steadily, shop)
        for number, change in enumerate(changes, 1):
            wait_until(partial(shop.reaches, 8 * number))
            change()
        assert not ordering.done()
        last = ordering.result()
        wait_until(partial(shop.reaches, ORDERS))
        took = time.monotonic() - last
        wait_until(shop.all_sent)
        again = shop.judge(one_by_one=False)
    print(f"{ORDERS} orders, all done {took:.1f} s after the last; sent again: {again}")
    assert took < DONE_SECONDS
