"""How nodes see each other, and the actions on them."""

import pytest

from disque_console.model.action import Form, Where
from disque_console.model.actions import ACTIONS
from disque_console.model.membership import members, together
from disque_console.model.roles import Role
from disque_trio.overview.groups import groups
from disque_trio.overview.names import quoted
from disque_trio.overview.nodes import Nodes

A, B, C, D = (f"10.0.0.{number}:7711" for number in range(1, 5))
IDS = {A: "a" * 40, B: "b" * 40, C: "c" * 40, D: "d" * 40}


def line(address: str, flags: str, linked: bool = True) -> str:
    return f"{IDS[address]} {address} {flags} 0 0 {'connected' if linked else 'disconnected'}\n"


def three() -> Nodes:
    """A and B respond, C is unreachable, and A has met D, which the console has not reached."""
    nodes = Nodes()
    for address in (A, B, C):
        nodes.responded(address, IDS[address], 100.0)
    nodes.take(
        A,
        {},
        line(A, "myself") + line(B, "noflags") + line(C, "fail", False) + line(D, "handshake"),
        101.0,
    )
    nodes.take(B, {}, line(B, "myself,leaving") + line(A, "noflags") + line(C, "fail?"), 101.0)
    nodes.take(C, {}, line(C, "myself") + line(A, "fail", False), 101.0)
    nodes.lost(C, "timed out", 110.0)
    return nodes


def test_links_and_flags_are_what_those_that_answer_say_of_the_others() -> None:
    a, b, c, d = members(three().all())
    assert (a.links, b.links, c.links) == (1, 1, 1)
    assert a.flags == {}
    assert c.flags == {"fail": [A], "fail?": [B]}
    assert (b.leaving, c.leaving) == (True, False)
    seen = c.seen_by(A)
    assert seen is not None
    assert not seen.connected
    assert c.seen_by(C) is None
    assert (d.id, d.address, d.state, d.flags) == (IDS[D], D, None, {"handshake": [A]})


def test_processes_of_a_server_are_one_node_and_nodes_that_only_others_know_stay_alone() -> None:
    nodes = three()
    lines = {f"process{n}": f"state=up,id={IDS[at]},address={at}" for n, at in enumerate((B, A))}
    for address in (A, B):
        state = nodes.get(address)
        assert state is not None
        state.info = {**lines, "process2": "state=down,id=,address="}
    both, c, d = together(members(nodes.all()), groups(nodes.all()))
    assert both.name == B
    assert {member.address for member in both.members} == {A, B}
    assert [one.number for one in both.unknown] == [2]
    assert [member.address for member in (*c.members, *d.members)] == [C, D]
    assert d.group is None


def test_a_node_that_is_forgotten_is_not_told_so_itself() -> None:
    fields = {"node": [quoted(C)], "id": [IDS[C]]}
    [order] = ACTIONS["forget"].make(Form(fields))
    assert (order.command, order.where, order.but) == (
        ("CLUSTER", "FORGET", IDS[C]),
        Where.EVERY,
        C,
    )


def test_leaving_goes_to_the_node_itself() -> None:
    form = Form({"node": [quoted(B)]})
    assert [ACTIONS[name].make(form)[0].where for name in ("leave", "stay")] == [B, B]
    assert B in ACTIONS["leave"].says(form, [b"OK"])


def test_a_node_is_met_by_any_or_by_one_that_was_chosen() -> None:
    fields = {"host": ["10.0.0.4"], "port": ["7711"]}
    [order] = ACTIONS["meet"].make(Form(fields))
    assert (order.command, order.where) == (("CLUSTER", "MEET", "10.0.0.4", "7711"), Where.ANY)
    [order] = ACTIONS["meet"].make(Form(fields | {"node": [B]}))
    assert order.where == B
    for bad in ({"host": [""]}, {"port": ["x"]}, {"port": ["0"]}):
        with pytest.raises(ValueError, match=r".+"):
            ACTIONS["meet"].make(Form(fields | bad))


def test_the_cluster_is_for_admins() -> None:
    for name in ("leave", "stay", "meet", "forget"):
        assert ACTIONS[name].role is Role.ADMIN
