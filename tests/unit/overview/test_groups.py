"""Processes of one server are one node."""

from disque_trio.overview.groups import Sibling, groups, siblings
from disque_trio.overview.nodes import Nodes

FIRST, SECOND, OTHER = "10.0.0.1:7711", "10.0.0.1:7712", "10.0.0.2:7711"
IDS = {FIRST: "a" * 40, SECOND: "b" * 40, OTHER: "c" * 40}
LINES = {
    "process0": f"state=up,id={IDS[FIRST]},address={FIRST},process_id=7",
    "process1": f"state=up,id={IDS[SECOND]},address={SECOND},process_id=8",
}


def three() -> Nodes:
    """A server of two processes, and one of one."""
    nodes = Nodes()
    for address, id in IDS.items():
        nodes.responded(address, id, 100.0)
        lines = {} if address == OTHER else LINES
        for moment, added in ((100.0, "0"), (102.0, "4")):
            info = {"registered_jobs": "5", "total_jobs_added": added, **lines}
            nodes.take(address, info, "", moment)
    return nodes


def test_what_info_tells_is_read() -> None:
    assert siblings({}) == ()
    assert siblings(LINES) == (
        Sibling(0, "up", IDS[FIRST], FIRST),
        Sibling(1, "up", IDS[SECOND], SECOND),
    )
    assert siblings({"process0": "?"}) == (Sibling(0, "", "", ""),)


def test_processes_of_a_server_are_one_group_with_sums() -> None:
    both, other = groups(three().all())
    assert [state.address for state in both.states] == [FIRST, SECOND]
    assert (both.name, both.count, both.status) == (FIRST, 2, "here")
    assert (both.number("registered_jobs"), both.rate("added")) == (10, 4.0)
    assert (other.name, other.count, other.number("registered_jobs")) == (OTHER, 1, 5)


def test_a_dead_process_is_one_of_a_living_node() -> None:
    nodes = three()
    nodes.lost(FIRST, "Connection refused", 110.0)
    both = groups(nodes.all())[0]
    assert (both.name, both.count, both.status, both.problem) == (FIRST, 2, "partly", "")
    assert both.number("registered_jobs") == 5
    nodes.lost(SECOND, "Connection refused", 111.0)
    both = groups(nodes.all())[0]
    assert (both.status, both.problem, both.since) == ("away", "Connection refused", 110.0)
    assert both.number("registered_jobs") == 10  # the last known values


def test_a_process_that_only_another_one_tells_of_is_there_as_well() -> None:
    nodes = three()
    nodes.forget(FIRST)
    both = groups(nodes.all())[0]
    assert [one.address for one in both.absent] == [FIRST]
    assert (both.name, both.count, both.status) == (FIRST, 2, "partly")
