"""Taking the jobs for Celery's workers, against a scripted node."""

import pytest
import trio

from disque_integrations.celery.consumer import Consumer
from disque_trio.client import connect
from tests.support.fake_disque import fake_node
from tests.support.harness import HANG_SECONDS

pytestmark = pytest.mark.trio


async def test_requests_during_connecting_open_no_second_connection() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        consumer = client.run_source(lambda *own: Consumer(*own, print, print))

        def consume(command: list[bytes]) -> bytes:
            if command[1:3] == [b"a", b"CREDIT"]:
                consumer.want(["a", "b"], 4)
            return b":0\r\n" if command[1] == b"STOP" else b"+OK\r\n"

        node.answers |= {"CONSUME": consume, "CREDIT": b"+OK\r\n"}
        consumer.want(["a"], 4)
        await node.wait_for(lambda: node.count("CONSUME") == 2)
        for times in range(1, 11):  # enough for a second one to appear
            consumer.want(["a", "b"], 4)
            await node.wait_for(lambda times=times: node.count("CREDIT") == times)
        consumer.retire()
        with trio.fail_after(HANG_SECONDS):
            await consumer.ended.wait()
        said = [command[1:3] for command in node.seen if command[0] == b"CONSUME"]
        assert said == [[b"a", b"CREDIT"], [b"a", b"b"], [b"STOP"]]
        assert len({on for on, name in node.seen_on if name == "CONSUME"}) == 1
