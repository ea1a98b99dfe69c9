"""What needs attention in a cluster, with a clock that the test moves."""

from typing import Any

from disque_trio.cli.subcommands.nodes import NodeRow
from disque_trio.client import Policy
from disque_trio.health.lines import AlarmLine, format_line
from disque_trio.health.table import DEAD_WITHIN, NO_WORKER_AFTER, WAITS_TOO_LONG
from disque_trio.overview.attention import concerns, summary
from disque_trio.overview.cluster import Cluster
from disque_trio.overview.policies import Policies
from disque_trio.overview.records import node_fields
from tests.unit.overview.test_queues import stat

A, B = "a:1", "b:1"
NOW = 10_000.0


def responded(cluster: Cluster, address: str, *lines: AlarmLine, **info: str) -> None:
    cluster.nodes.responded(address, f"id of {address}", NOW)
    fields = {f"alarm{number}": format_line(line) for number, line in enumerate(lines)}
    cluster.take(address, {"alarms": str(len(lines)), **fields, **info}, "", NOW)


def told(cluster: Cluster, now: float = NOW) -> list[tuple[str, str, str]]:
    return [(one.severity, one.kind, one.where) for one in concerns(cluster, now)]


FULL = AlarmLine("disk-full", "critical", 9_000, "", "the disk is full")
REWRITE = AlarmLine("rewrite", "warning", 8_000, "", "no space")
LOST = AlarmLine("peer-lost", "critical", 9_500, "c:1", "c:1 does not answer")


def test_a_cluster_that_is_well_needs_none() -> None:
    cluster = Cluster()
    responded(cluster, A)
    assert concerns(cluster, NOW) == []
    assert summary(cluster, NOW) == ("ok", {})


def test_nodes_are_named_with_what_they_say_the_worst_first() -> None:
    cluster = Cluster()
    responded(cluster, A, REWRITE)
    responded(cluster, B, FULL)
    assert told(cluster) == [("critical", "disk-full", B), ("warning", "rewrite", A)]
    assert concerns(cluster, NOW)[0].since == 9_000
    assert concerns(cluster, NOW)[0].cure
    assert summary(cluster, NOW) == (
        "critical",
        {("critical", "disk-full"): 1, ("warning", "rewrite"): 1},
    )


def test_a_node_that_several_miss_is_named_once() -> None:
    cluster = Cluster()
    responded(cluster, A, LOST)
    responded(cluster, B, LOST._replace(since=9_400))
    assert told(cluster) == [("critical", "peer-lost", "c:1")]
    assert concerns(cluster, NOW)[0].since == 9_400
    cluster.nodes.meet("c:1", NOW)
    cluster.lost("c:1", "connection refused", NOW)
    assert told(cluster) == [("critical", "peer-lost", "c:1")]
    assert "connection refused" in concerns(cluster, NOW)[0].text


def test_of_several_processes_each_is_asked_about_itself() -> None:
    cluster = Cluster()
    lines = [FULL._replace(process=0), REWRITE._replace(process=1)]
    responded(cluster, A, *lines, process="0")
    responded(cluster, B, *lines, process="1")
    assert told(cluster) == [("critical", "disk-full", A), ("warning", "rewrite", B)]
    for address, kind in ((A, "disk-full"), (B, "rewrite")):
        state = cluster.nodes.get(address)
        assert state is not None
        assert [alarm["kind"] for alarm in node_fields(state)["alarms"]] == [kind]
        assert NodeRow(state, NOW).trouble == state.alarms[0].cause


def test_a_node_that_is_gone_says_nothing_any_more() -> None:
    cluster = Cluster()
    responded(cluster, A, FULL)
    cluster.lost(A, "it hangs", NOW)
    state = cluster.nodes.get(A)
    assert state is not None
    assert state.alarms == []
    assert told(cluster) == [("critical", "peer-lost", A)]


def take(cluster: Cluster, now: float, length: int, **more: Any) -> None:
    cluster.queues.take(A, "q", stat(length, **more), now)


def test_a_queue_whose_jobs_nobody_takes_is_named_after_a_while() -> None:
    cluster = Cluster()
    take(cluster, NOW, 0)
    take(cluster, NOW + 1000, 5)
    assert told(cluster, NOW + 1000 + NO_WORKER_AFTER - 1) == []
    late = NOW + 1000 + NO_WORKER_AFTER
    assert told(cluster, late) == [("critical", "no-worker", "q")]
    assert "5 jobs" in concerns(cluster, late)[0].text
    take(cluster, late, 4, jobs_out=1)
    assert told(cluster, late) == []
    assert told(cluster, late + NO_WORKER_AFTER) == [("critical", "no-worker", "q")]
    take(cluster, late + NO_WORKER_AFTER, 4, jobs_out=1, pause=b"out")
    assert told(cluster, late + NO_WORKER_AFTER) == []
    take(cluster, late + NO_WORKER_AFTER, 0, jobs_out=1)
    assert told(cluster, late + 2 * NO_WORKER_AFTER) == []


def test_a_queue_that_is_behind_is_named() -> None:
    cluster = Cluster()
    take(cluster, NOW, 5, oldest_job_age=WAITS_TOO_LONG * 1000)
    assert told(cluster, NOW) == [("warning", "waits-long", "q")]


def test_queues_of_dead_letters_wait_for_people() -> None:
    cluster = Cluster()
    take(cluster, NOW, 5, oldest_job_age=WAITS_TOO_LONG * 1000)
    cluster.policies = Policies([Policy("mail", dead="q")])
    assert told(cluster, NOW + NO_WORKER_AFTER) == []
    cluster.policies = Policies()
    cluster.queues.counted(A, {"q": (0, 0, 5)}, NOW, NOW + 1, 60)
    assert told(cluster, NOW + NO_WORKER_AFTER) == []


def test_new_dead_letters_are_named_for_a_while() -> None:
    cluster = Cluster()
    take(cluster, NOW, 1)
    cluster.queues.counted(A, {"q": (0, 0, 3)}, NOW, NOW + 1, 60)
    assert told(cluster, NOW + 2) == []  # they may be old
    cluster.queues.counted(A, {"q": (0, 0, 5)}, NOW + 5, NOW + 6, 60)
    assert told(cluster, NOW + 7) == [("warning", "dead-letters", "q")]
    assert "2 jobs" in concerns(cluster, NOW + 7)[0].text


def test_the_first_dead_letter_of_a_queue_is_new_if_all_were_counted_before() -> None:
    cluster = Cluster()
    cluster.queues.counted(A, {}, NOW, NOW + 1, 60)
    take(cluster, NOW + 2, 1)
    cluster.queues.counted(A, {"q": (0, 0, 1)}, NOW + 5, NOW + 6, 60)
    assert told(cluster, NOW + 7) == [("warning", "dead-letters", "q")]


def test_a_dead_letter_that_may_be_as_old_as_the_last_count_is_not_new() -> None:
    cluster = Cluster()
    cluster.queues.counted(A, {}, NOW, NOW + 1, 60)
    late = NOW + DEAD_WITHIN
    cluster.queues.counted(A, {"q": (0, 0, 1)}, late, late + 1, 60)
    assert told(cluster, late + 2) == []


def test_new_dead_letters_are_named_in_a_queue_that_is_for_them() -> None:
    cluster = Cluster()
    cluster.policies = Policies([Policy("mail", dead="q")])
    cluster.queues.counted(A, {}, NOW, NOW + 1, 60)
    take(cluster, NOW + 2, 1, oldest_job_age=WAITS_TOO_LONG * 1000)
    cluster.queues.counted(A, {"q": (0, 0, 1)}, NOW + 5, NOW + 6, 60)
    assert told(cluster, NOW + 7) == [("warning", "dead-letters", "q")]


def told_by(node: str, cluster: Cluster, length: int, **more: int) -> None:
    """A reply of ``node`` to QSTAT."""
    times = {"filled_ago": 0, "wanted_ago": -1, "died_ago": -1, "jobs_died": 0} | more
    cluster.queues.take(node, "q", stat(length, **times), NOW)


def test_who_looks_for_the_first_time_knows_from_the_nodes_how_long_nobody_came() -> None:
    cluster = Cluster()
    told_by(A, cluster, 3, filled_ago=1_560_000)
    told_by(B, cluster, 0)
    assert told(cluster) == [("critical", "no-worker", "q")]
    assert "no worker for 26 min" in concerns(cluster, NOW)[0].text
    told_by(B, cluster, 0, wanted_ago=1_000)  # its client takes jobs of the other node
    assert told(cluster) == []


def test_who_looks_for_the_first_time_knows_from_the_nodes_which_jobs_died() -> None:
    cluster = Cluster()
    told_by(A, cluster, 0, died_ago=60_000, jobs_died=2)
    told_by(B, cluster, 0, died_ago=30_000, jobs_died=1)
    assert told(cluster) == [("warning", "dead-letters", "q")]
    assert concerns(cluster, NOW)[0].text == "3 jobs became dead letters, the last one 30 s ago"
    assert told(cluster, NOW + 600) == []
