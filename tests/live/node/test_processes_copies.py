"""A server of several processes counts as one host for the copies of a job."""

from tests.support.live_helpers import add_job, pairs
from tests.support.several import Start


def test_a_host_counts_once_for_copies(several: Start) -> None:
    server = several()
    wire = server.wire(0)
    assert wire.error("ADDJOB", "q", "body", 0, "REPLICATE", 2).startswith("NOREPL")
    id = add_job(wire, "q", "body")  # as many copies as possible
    assert pairs(wire("SHOW", id))["repl"] == 1
    assert server.nodes[1].ask("SHOW", id) is None
    # Copies on the same host have to be asked for.
    for node in server.nodes:
        assert node.ask("CONFIG", "SET", "cluster-failure-domain", "node") == b"OK"
    assert add_job(wire, "q", "body", "REPLICATE", 2)
