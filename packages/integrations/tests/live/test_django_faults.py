"""Workers and nodes die while Django tasks run."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from django.test import override_settings

from packages.integrations.tests.support.django_world import disconnect, tasks, tasks_on
from packages.integrations.tests.support.task_story import FAULTS, Workers, replicate, tell, url
from tests.support import PYTHONPATH
from tests.support.harness import HANG_SECONDS, ClusterFactory, LiveNode


def enqueue(nodes: Sequence[LiveNode], names: Sequence[str]) -> None:
    options = {"replicate": replicate(nodes), "retry_for": HANG_SECONDS}
    with override_settings(TASKS=tasks_on(url(nodes), **options)):
        for name in names:
            tasks.work.enqueue(name)
    disconnect()


@pytest.mark.parametrize("fault", FAULTS)
def test_no_task_is_lost_and_only_tasks_in_killed_processes_run_twice(
    fault: str, cluster: ClusterFactory, tmp_path: Path
) -> None:
    def start(nodes: Sequence[LiveNode], runs: Path) -> Workers:
        env = {"DISQUE_URL": url(nodes), "RUNS": str(runs), "PYTHONPATH": PYTHONPATH}
        env["REPLICATE"] = str(replicate(nodes))
        command = ["packages.integrations.tests.support.django_project", "disque_worker"]
        return Workers([*command, "--concurrency", "4"], env, tmp_path)

    tell(fault, cluster, tmp_path, start, enqueue)
