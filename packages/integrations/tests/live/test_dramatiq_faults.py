"""Workers and nodes die while Dramatiq messages are processed."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from dramatiq import Message

from disque_integrations.dramatiq import DisqueBroker
from packages.integrations.tests.support.task_story import (
    FAULTS,
    RETRY,
    Workers,
    replicate,
    tell,
    url,
)
from tests.support import PYTHONPATH
from tests.support.harness import HANG_SECONDS, ClusterFactory, LiveNode


def enqueue(nodes: Sequence[LiveNode], names: Sequence[str]) -> None:
    options = {"retry": RETRY, "replicate": replicate(nodes)}
    broker = DisqueBroker(url=url(nodes), retry_for=HANG_SECONDS, **options)
    try:
        for name in names:
            broker.enqueue(
                Message(
                    queue_name="default", actor_name="work", args=(name,), kwargs={}, options={}
                )
            )
    finally:
        broker.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_no_message_is_lost_and_only_messages_in_killed_processes_run_twice(
    fault: str, cluster: ClusterFactory, tmp_path: Path
) -> None:
    def start(nodes: Sequence[LiveNode], runs: Path) -> Workers:
        env = {"DISQUE_URL": url(nodes), "RUNS": str(runs), "PYTHONPATH": PYTHONPATH}
        return Workers(["packages.integrations.tests.support.dramatiq_app"], env, tmp_path)

    tell(fault, cluster, tmp_path, start, enqueue)
