"""Event logs of real nodes whose clocks are wrong."""

from functools import partial
from itertools import product

import pytest

from disque_spark.audit.rules import CLOCK_SKEW, Rules
from packages.spark.tests.support.audited_logs import Audited, audited
from packages.spark.tests.support.live_books import Books
from tests.support import ROOT
from tests.support.harness import wait_until
from tests.support.live_cluster import LiveCluster, Member
from tests.support.live_helpers import pairs

WRONG = (0, 4_000, -1_500)  # ms, of each node's clock
HOOK = ROOT / "tests" / "support" / "skewed_clock"


def _knows_of(node: Member, id: bytes, nacks: int) -> bool:
    return pairs(node.ask("SHOW", id))["nacks"] == nacks


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> tuple[Audited, Books, list[str]]:
    """The audit of a cluster in which jobs of each node were done at each other node."""
    directory = tmp_path_factory.mktemp("wrong")
    cluster = LiveCluster(directory, 3, "--event-log", "yes")
    try:
        for node, wrong in zip(cluster, WRONG, strict=True):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PYTHONPATH", str(HOOK))
                patch.setenv("WRONG_CLOCK_MS", str(wrong))
                node.spawn()
        for node in cluster:
            node.wait_ready()
        for node in cluster.nodes[1:]:
            cluster[0].meet(node)
        cluster.wait_joined()
        ids = [id.decode() for id in cluster.ids]
        books = Books(cluster)
        for number, node in enumerate((1, 2, 0)):
            for copies in (1, 2, 3):
                books.add(node, f"q{node}", 5, "REPLICATE", copies, "RETRY", 60)
            found = books.get((node + 1 + number) % 3, f"q{node}", 15)
            for id in found:
                books.say((node + 2) % 3, "ACKJOB", [id])
        books.add(0, "poison", 2, "REPLICATE", 3, "RETRY", 60)
        for turn in range(5):
            found = books.get(turn % 3, "poison", 2)
            for id in found:
                books.say((turn + 1) % 3, "NACK", [id])
            # If a node heard of this only after the next NACK, which it is meant to get itself, it
            # would take the job out of its queue, since another node says that it has it.
            for node, id in product(cluster, found):
                wait_until(partial(_knows_of, node, id, turn + 1))
        books.close()
        for node in cluster:
            assert node.stop() == 0
    finally:
        cluster.close()
    return audited([node.directory / "events" for node in cluster], Rules(settled=60)), books, ids


def test_clocks_that_are_wrong_are_found_with_sign_and_size(
    audit: tuple[Audited, Books, list[str]],
) -> None:
    found, _, ids = audit
    place = [found.nodes.index(id) for id in ids]
    for one in range(3):
        for other in range(3):
            true = WRONG[other] - WRONG[one]
            said = found.clocks.ahead[place[other]] - found.clocks.ahead[place[one]]
            doubt = found.clocks.doubt[place[one]][place[other]]
            assert abs(said - true) <= doubt + 2
            assert doubt < 250  # for packets, on a machine that is busy with other tests
    pairs = {frozenset(f.nodes) for f in found.findings if f.kind == CLOCK_SKEW}
    assert pairs == {frozenset((ids[a], ids[b])) for a, b in ((0, 1), (0, 2), (1, 2))}


def test_wrong_clocks_make_no_other_findings(audit: tuple[Audited, Books, list[str]]) -> None:
    found, books, _ = audit
    again = {id for id, entry in books.jobs.items() if len(entry.delivered) > 1}
    assert again == books.ids("poison")
    others = {(f.kind, f.reason, f.job) for f in found.findings if f.kind != CLOCK_SKEW}
    assert others == {
        (kind, reason, id)
        for id in again
        for kind, reason in (("poison", None), ("delivered-twice", "nack"))
    }
