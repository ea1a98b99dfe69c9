"""Clusters that are broken on purpose, which the checks have to notice."""

from collections.abc import Callable

from tests.simulator.campaign import simulate
from tests.simulator.world import World

SEEDS = 40

Spoil = Callable[[World], None]
MadeOf = Callable[[type], Spoil]  # of a class that derives from a part of a node


def only_stops(world: World) -> None:
    """Let nodes only stop, each when another one has just given it jobs."""
    world.faults.only_stops = True


def only_kills(world: World) -> None:
    """Let nothing happen but the death of a node whose client has had a job for some time."""
    world.faults.only_kills = True


def found(
    spoil: Spoil,
    mode: str,
    *texts: str,
    seeds: int = SEEDS,
    first: int = 0,
    membership: str = "static",
) -> bool:
    """Whether one of ``texts`` is reported about a run of a spoiled cluster; there are ``seeds``
    runs, with seeds from ``first`` on, which is best one that shows it. The first report ends the
    run."""

    def spoil_and_look(world: World) -> None:
        world.oracle.enough = texts
        spoil(world)

    for seed in range(first, first + seeds):
        outcome = simulate(seed, mode, membership, spoil=spoil_and_look)
        for problem in outcome.problems:
            if any(text in problem.text for text in texts):
                return True
    return False
