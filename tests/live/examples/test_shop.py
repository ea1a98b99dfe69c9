"""The shop of ``examples/shop``: each order is done and charged once, whatever happens to the
workers, the nodes and the outbox while orders come in."""

from pathlib import Path

from tests.support.harness import free_port, start_process, wait_for_ping, wait_until
from tests.support.shop import open_shop


def test_orders_are_done_although_workers_the_outbox_and_the_node_are_replaced_and_killed(
    tmp_path: Path,
) -> None:
    port = free_port()
    options = ("--port", str(port), "--appendonly", "yes", "--appendfsync", "always")
    node = start_process(tmp_path, port, *options)
    assert wait_for_ping(node)
    assert node.ask("QSET", "hooks", "GROUPS", "fifo") == b"OK"
    try:
        with open_shop(tmp_path, [port]) as shop:
            shop.order(4)
            shop.replace_worker()
            shop.order(4)
            wait_until(lambda: shop.done() >= 2)
            shop.kill_process()
            shop.kill_outbox()
            shop.order(4)
            wait_until(lambda: shop.done() >= 6)
            shop.kill(node.kill)
            node = start_process(tmp_path, port, *options)
            shop.order(4)
            wait_until(shop.all_sent)
            shop.judge()
    finally:
        node.close()
