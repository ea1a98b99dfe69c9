"""Two teams that do not trust each other share a cluster: one does its work, the other takes
whatever it can get."""

from collections.abc import Iterator
from statistics import median

import pytest

from tests.support.harness import ClusterFactory, LiveNode, NodeFactory, wait_until
from tests.support.hostile_team import HostileTeam, declare_teams
from tests.support.quiet_team import COUNT, p99, work

# What the node of a company that shares it would have.
OPTIONS = (
    "--maxmemory", "200mb",
    "--maxmemory-clients", "100mb",
    "--client-output-buffer-limit", "normal", "32mb", "16mb", "10",
)  # fmt: skip


@pytest.fixture(params=[1, 3])
def nodes(request: pytest.FixtureRequest, cluster: ClusterFactory) -> list[LiveNode]:
    return cluster(request.param, *OPTIONS)


@pytest.fixture
def team(nodes: list[LiveNode]) -> Iterator[HostileTeam]:
    """The hostile team, which attacks the first node."""
    for node in nodes:
        declare_teams(node, 200)
    team = HostileTeam(nodes[0])
    yield team
    team.close()


def budget_of(node: LiveNode, user: str) -> dict[str, int]:
    """What INFO says of the budget of ``user``."""
    words = node.info("users")[f"user_{user}"].split(",")
    return {name: int(value) for name, value in (word.split("=") for word in words)}


def test_a_quiet_team_is_never_refused_beside_a_hostile_one(
    nodes: list[LiveNode], team: HostileTeam
) -> None:
    wires = [node.wire() for node in nodes]
    for wire in wires:
        assert wire("AUTH", "good", "good") == b"OK"
    node, quiet = nodes[0], wires[0]
    assert quiet("CRON", "SET", "good", "@every 1s", "good.ticks", "tick") is not None
    number = 0

    def all_tried() -> bool:
        nonlocal number
        work(wires[number % len(wires)], number)
        number += 1
        used = budget_of(node, "bad")
        return (
            team.seen == {b"OOM", b"LIMIT"}
            and team.refused > 0
            and used["waited"] > 0
            and used["closed"] > 0
            and used["schedules"] == used["maxschedules"]
            and used["bindings"] == used["maxbindings"]
        )

    wait_until(all_tried)
    used = budget_of(node, "bad")
    for limit in ("memory", "keys", "schedules", "bindings", "connections"):
        assert 0 < used[limit] <= used[f"max{limit}"]
    wait_until(lambda: quiet("GETJOB", "NOHANG", "FROM", "good.ticks"))


@pytest.mark.load  # how long the quiet team waits is the question
def test_a_quiet_team_waits_at_most_twice_as_long_beside_a_hostile_one(
    disque_server: NodeFactory,
) -> None:
    node = disque_server(*OPTIONS)
    declare_teams(node, 50)
    p99(node, 0)
    before = p99(node, COUNT)
    team = HostileTeam(node)
    try:
        p99(node, 2 * COUNT)  # until it has used what its rate allows at once
        assert budget_of(node, "bad")["waited"] > 0
        beside = median(p99(node, round * COUNT) for round in (3, 4, 5))
    finally:
        team.close()
    p99(node, 6 * COUNT)
    after = p99(node, 7 * COUNT)
    assert beside <= before + after
