"""Keys of ADDJOB UNIQUE under random sequences of kills, cut links, and lost and late packets."""

import os

import pytest

from tests.support.start_world import StartWorld
from tests.support.unique_world import UniqueWorld

SEEDS = int(os.environ.get("UNIQUE_SEEDS", "4"))  # a run; hundreds a minute


@pytest.mark.parametrize("kept", [False, True], ids=["while-it-lives", "for"])
@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.slow
def test_no_two_jobs_with_one_key_live_and_what_is_answered_exists(size: int, kept: bool) -> None:
    added = 0
    for seed in range(SEEDS):
        world = UniqueWorld(seed, size, kept)
        world.run(300)
        assert not world.problems, (seed, world.problems, "\n".join(world.log))
        added += sum(len(ids) for ids in world.answered.values())
    assert added > SEEDS


@pytest.mark.parametrize("size", [2, 3, 5])
def test_without_faults_every_producer_gets_an_id(size: int) -> None:
    for seed in range(SEEDS):
        world = UniqueWorld(seed, size, False)
        world.patient = True
        world.run(200, faults=False)
        assert not world.problems, (seed, world.problems, "\n".join(world.log))
        assert not world.undecided, (seed, "\n".join(world.log))


@pytest.mark.parametrize(("size", "seed"), [(2, 33), (3, 1)])
def test_after_faults_every_producer_gets_a_reply(size: int, seed: int) -> None:
    """Even if a packet was lost that said that a claim does not want the key before another."""
    world = UniqueWorld(seed, size, False)
    world.patient = True
    world.run(300)
    assert not world.problems, (world.problems, "\n".join(world.log))


@pytest.mark.parametrize("replace", [False, True], ids=["until-start", "replace"])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_without_faults_a_job_starts_after_all_who_got_its_id_asked(
    size: int, replace: bool
) -> None:
    shared = 0
    for seed in range(SEEDS):
        world = StartWorld(seed, size, replace, exact=True)
        world.run(200, faults=False)
        world.judge()
        assert not world.problems, (seed, world.problems, "\n".join(world.log))
        answers = [asked.id for asked in world.asked if asked.id]
        shared += len(answers) - len(set(answers))
        assert len(answers) > 0.8 * len(world.asked)
    assert shared > SEEDS


@pytest.mark.parametrize("replace", [False, True], ids=["until-start", "replace"])
@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.slow
def test_with_faults_whatever_was_answered_runs(size: int, replace: bool) -> None:
    for seed in range(SEEDS):
        world = StartWorld(seed, size, replace, exact=False)
        world.run(300)
        world.judge()
        assert not world.problems, (seed, world.problems, "\n".join(world.log))
