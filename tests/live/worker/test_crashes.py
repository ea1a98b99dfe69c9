"""Tasks that kill their processes, or let nothing else run there, beside others that do not."""

import os
import signal

import pytest

from disque_trio.client.sync import Client
from disque_trio.tasks.looking import letter_id
from tests.support.harness import wait_until
from tests.support.worker_rig import Rig, lives


def letter(client: Client, id: str) -> str:
    """The reason in the dead letter of a job; empty if there is none."""
    return str((client.show(letter_id(id)) or {}).get("dead-reason", ""))


def test_a_task_that_kills_its_process_dies_alone(rig: Rig) -> None:
    rig.add_all("hold", [[number, 1] for number in range(3)])
    (id,) = rig.add_all("poison", [[]])
    rig.add_all("hold", [[number, 1] for number in range(3, 7)])
    worker = rig.start()
    with rig.client() as client:
        rig.noted("held", count=7)
        wait_until(lambda: letter(client, id))
        assert letter(client, id).startswith("its process died: killed by SIGKILL, memory ")
    assert {words[1] for words in rig.notes("held")} == set("0123456")
    wait_until(lambda: worker.ended("dead") == 1)
    # Two processes with others in them, or fewer if it was alone in one, and those of its own.
    assert len({pid for _, pid in rig.notes("poison")}) in (3, 4, 5)
    assert worker.stop() == 0


@pytest.mark.parametrize("task", ["stall", "hog"])
def test_a_task_that_lets_nothing_else_run_keeps_its_job(rig: Rig, task: str) -> None:
    rig.add(task, 8, retry=4)
    worker = rig.start("--processes", "2")
    rig.noted("ended")
    assert len(rig.notes("begun")) == 1
    wait_until(lambda: worker.ended("done") == 1)
    assert worker.stop() == 0


def test_a_process_that_hangs_is_replaced_if_that_is_wanted(rig: Rig) -> None:
    rig.add("gate", "a")
    worker = rig.start("--stuck-after", "3")
    ((*_, pid),) = rig.noted("begun")
    os.kill(int(pid), signal.SIGSTOP)
    rig.noted("begun", count=2)
    assert not lives(int(pid))
    rig.open("a")
    rig.noted("ended")
    assert worker.stop() == 0
