"""What is known about the nodes, with a clock that the test moves."""

from disque_trio.overview.cluster import Cluster
from disque_trio.overview.histories import Histories
from disque_trio.overview.nodes import Nodes, read_lines

A, B = "10.0.0.1:7711", "10.0.0.2:7711"
ID_A, ID_B = "a" * 40, "b" * 40


def told(added: int = 0, **more: int) -> dict[str, str]:
    fields = {"total_jobs_added": added, **more}
    return {name: str(value) for name, value in fields.items()}


def test_a_node_is_connecting_until_it_answers_or_a_problem_is_known() -> None:
    nodes = Nodes()
    assert nodes.meet(A, 100.0).status == "connecting"
    nodes.lost(A, "Connection refused", 101.0)
    assert nodes.meet(A, 102.0).status == "away"
    nodes.responded(A, ID_A, 103.0)
    assert (nodes.meet(A, 104.0).status, nodes.meet(A, 104.0).since) == ("here", 103.0)


def test_a_node_that_goes_away_keeps_what_it_told_and_since_when_it_is_away() -> None:
    nodes = Nodes()
    nodes.responded(A, ID_A, 100.0)
    nodes.take(A, told(registered_jobs=7), "", 100.0)
    nodes.lost(A, "timed out", 110.0)
    nodes.lost(A, "Connection refused", 120.0)
    state = nodes.meet(A, 130.0)
    assert (state.since, state.problem) == (110.0, "Connection refused")
    assert state.number("registered_jobs") == 7


def test_sums_and_rates_are_of_the_nodes_that_answer() -> None:
    nodes = Nodes()
    for address, id in ((A, ID_A), (B, ID_B)):
        nodes.responded(address, id, 100.0)
        nodes.take(address, told(100, registered_jobs=5), "", 100.0)
        nodes.take(address, told(120, registered_jobs=6), "", 102.0)
    assert (nodes.rate("added"), nodes.total("registered_jobs")) == (20.0, 12)
    nodes.lost(B, "timed out", 103.0)
    assert (nodes.rate("added"), nodes.total("registered_jobs")) == (10.0, 6)


def test_a_rate_is_not_known_until_a_node_has_told_twice() -> None:
    nodes = Nodes()
    nodes.responded(A, ID_A, 100.0)
    nodes.take(A, told(1_000_000), "", 100.0)
    assert nodes.rate("added") is None


def test_a_restarted_node_has_no_negative_rate() -> None:
    nodes = Nodes()
    nodes.responded(A, ID_A, 100.0)
    nodes.take(A, told(1_000_000), "", 100.0)
    assert nodes.take(A, told(30), "", 110.0)["added"] == 30
    assert nodes.rate("added") == 3.0


def test_what_was_added_while_a_node_was_away_is_no_rate() -> None:
    nodes = Nodes()
    nodes.responded(A, ID_A, 100.0)
    nodes.take(A, told(0), "", 100.0)
    nodes.lost(A, "timed out", 101.0)
    nodes.responded(A, ID_A, 200.0)
    assert nodes.take(A, told(1_000_000), "", 200.0) == {}
    assert nodes.rate("added") is None


def test_failed_jobs_are_those_that_came_back_died_or_expired() -> None:
    nodes = Nodes()
    nodes.take(A, told(), "", 100.0)
    more = {"total_jobs_requeued": 1, "total_jobs_dead": 2, "total_jobs_expired": 3}
    assert nodes.take(A, told(0, **more), "", 101.0)["failed"] == 6


def test_a_node_says_itself_that_it_leaves() -> None:
    nodes = Nodes()
    nodes.responded(A, ID_A, 100.0)
    line = f"{ID_A} {A} myself,leaving 0 0 connected\n{ID_B} {B} noflags 5 6 disconnected\n"
    nodes.take(A, told(), line, 101.0)
    state = nodes.meet(A, 101.0)
    assert state.status == "leaving"
    assert [(one.flags, one.connected) for one in state.lines] == [
        (("myself", "leaving"), True),
        ((), False),
    ]


def test_lines_that_cannot_be_read_are_left_out() -> None:
    assert read_lines("nonsense\n\na b c d e f\n") == ()


def test_figures_that_are_no_numbers_are_zero() -> None:
    nodes = Nodes()
    nodes.take(A, {"registered_jobs": "many"}, "", 1.0)
    assert nodes.meet(A, 1.0).number("registered_jobs") == 0


def test_a_node_that_is_away_and_that_nobody_knows_is_no_node_any_more() -> None:
    cluster = Cluster()
    for address, id in ((A, ID_A), (B, ID_B)):
        cluster.nodes.responded(address, id, 1.0)
    cluster.knows(A, {ID_A, ID_B})
    cluster.lost(B, "timed out", 2.0)
    assert cluster.strangers([A]) == []
    cluster.knows(A, {ID_A})
    assert cluster.strangers([A]) == [B]
    assert cluster.strangers([A, B]) == []


def test_a_node_that_restarts_empty_has_not_forgotten_the_others() -> None:
    cluster = Cluster()
    for address, id in ((A, ID_A), (B, ID_B)):
        cluster.nodes.responded(address, id, 1.0)
        cluster.knows(address, {ID_A, ID_B})
    cluster.lost(A, "closed", 2.0)
    cluster.lost(B, "timed out", 2.0)
    cluster.nodes.responded(A, "c" * 40, 3.0)
    cluster.knows(A, {"c" * 40})
    assert cluster.strangers(()) == []


def test_a_node_that_the_others_do_not_know_is_apart() -> None:
    cluster = Cluster()
    ids = {A: ID_A, B: ID_B, "c:1": "c" * 40}
    for address, id in ids.items():
        cluster.nodes.responded(address, id, 1.0)
    cluster.knows(B, {ID_B, "old" * 13 + "x", "c" * 40})
    assert not cluster.nodes.apart  # the others have not answered yet
    cluster.knows(A, {ID_A})
    assert cluster.nodes.apart == {A}
    cluster.knows("c:1", {ID_B, "c" * 40})
    assert cluster.nodes.apart == {A}
    cluster.knows(A, {ID_A, ID_B})  # it was told of one
    assert not cluster.nodes.apart


def test_of_two_nodes_that_do_not_know_each_other_the_one_that_knows_more_counts() -> None:
    cluster = Cluster()
    for address, id in ((A, ID_A), (B, ID_B)):
        cluster.nodes.responded(address, id, 1.0)
    cluster.knows(A, {ID_A})
    cluster.knows(B, {ID_B, "c" * 40})
    assert cluster.nodes.apart == {A}
    cluster.lost(A, "timed out", 2.0)
    cluster.knows(B, {ID_B, "c" * 40})
    assert not cluster.nodes.apart


def test_the_history_of_the_whole_is_the_sum_of_the_nodes() -> None:
    histories = Histories()
    cluster = Cluster(histories)
    for moment, count in ((100.0, 0), (110.0, 10), (120.0, 10)):
        for address, id in ((A, ID_A), (B, ID_B)):
            cluster.nodes.responded(address, id, moment)
            cluster.take(address, told(count), "", moment)
        cluster.sample(moment)
    points = histories.cluster.ranges["1h"].points(["added", "length"], 122.0)
    # Before the first two answers nothing was counted, and the last step has just begun.
    assert [point.values for point in points][-4:] == [(None, None), (2.0, 0), (0.0, 0), (None, 0)]


def test_what_a_node_counted_before_it_told_is_no_rate() -> None:
    nodes = Nodes()
    nodes.responded(A, "a" * 40, 99.0)
    nodes.take(A, {}, "", 100.0)
    assert nodes.take(A, told(1_000_000), "", 102.0) == {}
    assert nodes.take(A, told(1_000_004), "", 104.0)["added"] == 4
    assert nodes.rate("added") == 2.0
