"""A worker whose number of processes follows the work."""

from tests.support.harness import wait_until
from tests.support.worker_rig import Rig, lives


def test_there_are_more_processes_while_jobs_wait_and_fewer_later(rig: Rig) -> None:
    names = "abcdef"
    rig.add_all("gate", [[name] for name in names])
    worker = rig.start(
        *("--processes", "1..3", "--concurrency", "1"),
        *("--scale-age", "0.5", "--scale-idle", "2"),
    )
    rig.noted("begun", count=3)
    wait_until(lambda: len(worker.pids()) == 3)
    assert worker.status().get("wanted") == 3
    pids = {int(pid) for _, _, pid in rig.notes("begun")}
    assert len(pids) == 3
    for name in names[:5]:
        rig.open(name)
    rig.noted("ended", count=5)  # the last one goes on
    rig.noted("begun", count=6)
    wait_until(lambda: worker.status().get("wanted") == 2)
    rig.open("f")
    rig.noted("ended", "f")  # also if its process was to end
    wait_until(lambda: worker.status().get("wanted") == 1)
    wait_until(lambda: sum(map(lives, pids)) == 1)
    worker.serves(1)
    assert len(rig.notes("begun")) == 6
    assert worker.stop() == 0
