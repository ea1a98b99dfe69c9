"""What jobs have been through whose workers have no parent."""

import pytest

from disque_integrations.crashes import counted, runs_alone
from disque_trio.job_past import MOST, NOTHING, Past


def test_a_job_that_nothing_happened_to_runs_beside_others() -> None:
    assert not runs_alone(NOTHING)
    assert not runs_alone(counted(Past.read("ValueError: no"), 0))


def test_a_job_whose_worker_stopped_runs_beside_others() -> None:
    past = NOTHING
    for _ in range(20):
        past = counted(Past.read(past.stopped().reason().decode()), 0)
        assert not runs_alone(past)
    assert past.said == "its worker stopped"


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_a_job_whose_process_died_beside_others_runs_alone_and_is_not_guilty(lost: int) -> None:
    past = counted(NOTHING, lost)
    assert runs_alone(past)
    assert not past.is_guilty
    assert past.crashes == lost


def test_only_crashes_of_a_process_of_its_own_count_against_a_job() -> None:
    past = counted(NOTHING, 2)
    pauses = []
    for times in range(1, MOST + 1):
        past = past.crashed("its process died: killed by SIGSEGV", alone=True)
        assert (past.crashes, past.alone) == (2 + times, times)
        pauses.append(past.pause)
        past = counted(Past.read(past.reason().decode()), 2)
        assert past.is_guilty is (times == MOST)
    assert pauses == sorted(pauses)
    assert past.said == "its process died: killed by SIGSEGV"
