"""Schedules survive restarts, and the death of the node that adds their jobs."""

from pathlib import Path

from tests.support.harness import ClusterFactory, LiveNode, NodeFactory, notice_deaths, wait_until
from tests.support.live_helpers import pairs

QUEUE = "ticks"


def totals(nodes: list[LiveNode]) -> list[int]:
    """Return how many ticks each of ``nodes`` has added."""
    return [int(node.info("stats")["total_ticks"]) for node in nodes]


def ids(node: LiveNode) -> list[bytes]:
    """Return the IDs of the jobs of the schedule on ``node``."""
    _, found = node.ask("JSCAN", "BUSYLOOP", "QUEUE", QUEUE)  # type: ignore[misc]
    return found


def schedule(node: LiveNode, name: str = "s") -> dict[str, object]:
    """Return the fields of CRON GET."""
    return pairs(node.ask("CRON", "GET", name))


def test_a_schedule_ticks_over_the_death_of_the_node_that_made_the_last_tick(
    cluster: ClusterFactory,
) -> None:
    nodes = cluster(3)
    assert nodes[1].ask("CRON", "SET", "s", "@every 1s", QUEUE, "body", "RETRY", "3600") == b"OK"
    wait_until(lambda: sum(totals(nodes)) >= 3)
    (ticker,) = [node for node, total in zip(nodes, totals(nodes), strict=True) if total]
    ticker.kill()
    left = [node for node in nodes if node is not ticker]
    notice_deaths(left)
    wait_until(lambda: sum(totals(left)) >= 3)
    # Some ticks may be skipped until the node is known to be dead, but none has two jobs.
    keys = [pairs(left[0].ask("SHOW", id))["unique-key"] for id in ids(left[0])]
    assert len(keys) == len(set(keys))


def test_all_nodes_know_a_schedule_also_one_that_comes_later(cluster: ClusterFactory) -> None:
    nodes = cluster(2)
    nodes[0].ask("CRON", "SET", "nightly", "0 3 * * *", "TZ", "Europe/Berlin", QUEUE, "body")
    wait_until(lambda: nodes[1].ask("CRON", "GET", "nightly"))
    [late] = cluster(1)
    assert nodes[1].ask("CLUSTER", "MEET", late.host, late.port) == b"OK"
    wait_until(lambda: late.ask("CRON", "GET", "nightly"))
    assert schedule(late, "nightly") == schedule(nodes[0], "nightly")
    assert late.ask("CRON", "DEL", "nightly") == 1
    wait_until(lambda: nodes[0].ask("CRON", "GET", "nightly") is None)


def test_a_schedule_outlives_a_kill_and_makes_up_what_was_missed(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server("--dir", str(tmp_path))
    words = ("CRON", "SET", "s", "@every 1s", "CATCHUP", QUEUE, "body", "RETRY", "3600")
    assert node.ask(*words) == b"OK"
    wait_until(lambda: totals([node]) >= [2])
    node.kill()
    again = disque_server("--dir", str(tmp_path))
    assert schedule(again)["catchup"] == 1
    wait_until(lambda: totals([again]) >= [2])
