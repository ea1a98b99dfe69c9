"""ADDJOB counts hosts where copies are to be on different ones: before a job is made."""

import pytest
from mesh import Mesh

A, B = "10.0.0.1", "10.0.0.2"


def spread(*ips: str) -> Mesh:
    mesh = Mesh(len(ips), jitter=None)
    mesh.spread(*ips)
    return mesh


def ask(mesh: Mesh, *args: str | int, timeout: int = 0) -> str:
    """ADDJOB on node 0; returns its reply, empty if it waits."""
    bench = mesh[0]
    bench.send(bench.me, "ADDJOB", "q", "body", timeout, *args)
    mesh.settle()
    return "".join(r.decode() if isinstance(r, bytes) else str(r) for r in bench.replies(bench.me))


def hosts_of(mesh: Mesh, id: bytes, ips: tuple[str, ...]) -> list[str]:
    return sorted(ips[i] for i in mesh.holders(id))


@pytest.mark.parametrize("options", [(), ("ASYNC",)])
def test_more_copies_than_hosts_are_refused_at_once(options: tuple[str, ...]) -> None:
    mesh = spread(A, A, B)
    assert ask(mesh, "REPLICATE", 3, *options).startswith("NOREPL Not enough reachable nodes")
    assert spread(A, A, A).peers[0].places() == 1
    assert ask(spread(A, A, A), "REPLICATE", 2).startswith("NOREPL")


def test_a_job_has_as_many_copies_as_there_are_hosts_if_nobody_says_how_many() -> None:
    mesh = spread(A, A)
    assert mesh.holders(mesh.add(0)) == [0]
    ips = (A, A, B, B)
    mesh = spread(*ips)
    assert hosts_of(mesh, mesh.add(0), ips) == [A, B]


def test_until_the_own_address_is_known_no_copy_is_placed() -> None:
    assert ask(spread("", A), "REPLICATE", 2).startswith("NOREPL")


def test_a_leaving_node_gives_all_to_the_other_process_of_the_only_host() -> None:
    mesh = spread(A, A)
    mesh[0].node.set_leaving(True)
    assert mesh.holders(mesh.add(0)) == [1]
