"""A cluster whose nodes show who they are: who gets in, who does not, and who is expelled."""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import hiredis
import pytest

from tests.support.bus_proxy import HOST
from tests.support.harness import wait_until
from tests.support.live_cluster import LiveCluster, Member, job_goes_round, live_cluster
from tests.support.live_helpers import add_job
from tests.support.live_load import load_on

SECRET = "the-secret-of-the-nodes"
IDENTITY = ("--cluster-identity", "yes")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    directory = tmp_path_factory.mktemp("identity")
    with live_cluster(directory, 3, *IDENTITY, "--cluster-secret", SECRET) as found:
        yield found


@pytest.fixture
def cluster(running: LiveCluster) -> Iterator[LiveCluster]:
    """Three nodes without jobs."""
    yield running
    running.end_test()


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Member]:
    """A node outside the cluster that knows its secret."""
    with live_cluster(tmp_path, 1, *IDENTITY, "--cluster-secret", SECRET) as other:
        yield other[0]


def key_of(node: Member) -> bytes:
    key = node.ask("CLUSTER", "MYKEY")
    assert isinstance(key, bytes)
    return key


def keys(node: Member) -> dict[bytes, tuple[bytes, bytes]]:
    """Key and state of each node, by id."""
    reply = node.ask("CLUSTER", "KEYS")
    assert isinstance(reply, list)
    return {id: (key, state) for id, key, state, _ in reply}


def refused(node: Member) -> int:
    return int(node.cluster_info()["cluster_identity_refused"])


def is_expelled(node: Member, id: bytes) -> bool:
    return keys(node).get(id, (b"", b""))[1] == b"expelled" and id not in node.lines()


def test_jobs_go_through_and_all_know_all_keys(cluster: LiveCluster) -> None:
    job_goes_round(cluster)
    shown = {node.id: key_of(node) for node in cluster}
    assert len(set(shown.values())) == 3
    for node in cluster:
        assert {id: key for id, (key, _) in keys(node).items()} == shown
        assert node.cluster_info()["cluster_identity_missing"] == "0"
        file = node.directory / "nodes.conf.key"
        assert file.stat().st_mode & 0o777 == 0o600


def test_who_has_the_secret_but_no_pinned_key_can_do_nothing(
    cluster: LiveCluster, stranger: Member
) -> None:
    before = refused(cluster[0])
    stranger.meet(cluster[0])
    wait_until(lambda: refused(cluster[0]) > before + 1)
    for node in cluster:
        assert stranger.id not in node.lines()
        assert stranger.id not in keys(node)
    assert not set(cluster.ids) & set(stranger.lines())
    assert "is unknown here" in cluster[0].log.read_text()


def test_nodes_that_are_told_to_meet_each_other_do(tmp_path: Path) -> None:
    places = tmp_path / "one", tmp_path / "other"
    for place in places:
        place.mkdir()
    with (
        live_cluster(places[0], 1, *IDENTITY) as one,
        live_cluster(places[1], 1, *IDENTITY) as other,
    ):
        pair = one[0], other[0]
        pair[0].meet(pair[1])
        pair[1].meet(pair[0])
        for a, b in (pair, pair[::-1]):
            wait_until(lambda a=a, b=b: b.id in a.lines() and b.id in keys(a))
            assert keys(a)[b.id] == (key_of(b), b"pinned")


def test_meet_with_another_key_lets_nobody_in(cluster: LiveCluster, stranger: Member) -> None:
    before = refused(cluster[0])
    wrong = key_of(cluster[1])
    reply = cluster[0].ask("CLUSTER", "MEET", HOST, stranger.port, "KEY", wrong)
    assert reply == b"OK"
    wait_until(lambda: refused(cluster[0]) > before)
    assert stranger.id not in cluster[0].lines()


def test_an_impostor_with_a_copy_of_nodes_conf_is_refused(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3, *IDENTITY) as cluster:
        victim = cluster[2]
        id = victim.id
        victim.close()
        (victim.directory / "nodes.conf.key").unlink()
        before = refused(cluster[0])
        victim.start()
        assert victim.id == id
        wait_until(lambda: refused(cluster[0]) > before + 1)
        cluster.wait_failing([id], cluster.nodes[:2])
        job = add_job(cluster[0].wire(), "q", "body", "REPLICATE", 2)
        assert job
        assert victim.registered() == 0


def test_an_expelled_node_is_out_for_good_and_can_be_readmitted(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 4, *IDENTITY) as cluster:
        away, bad = cluster[2], cluster[3]
        id, key = bad.id, key_of(bad)
        away.close()
        assert cluster[0].ask("CLUSTER", "EXPEL", id) == b"OK"
        for node in cluster.nodes[:2]:
            wait_until(partial(is_expelled, node, id))
        away.start()
        wait_until(partial(is_expelled, away, id))
        before = [refused(node) for node in cluster.nodes[:2]]
        for node, count in zip(cluster.nodes[:2], before, strict=True):
            bad.meet(node)
            wait_until(lambda node=node, count=count: refused(node) > count)
        for node in cluster.nodes[:3]:
            node.close()
            node.start()
        cluster.wait_joined(cluster.nodes[:3])
        assert all(is_expelled(node, id) for node in cluster.nodes[:3])
        add_job(cluster[0].wire(), "q", "body", "REPLICATE", 3)
        assert bad.registered() == 0

        for node in cluster.nodes[:3]:
            assert node.ask("CLUSTER", "READMIT", key) == b"OK"
        wait_until(lambda: keys(cluster[0])[id][1] == b"pinned")
        cluster[0].meet(bad)
        cluster.wait_joined()


def test_commands_about_keys_say_what_is_wrong(cluster: LiveCluster) -> None:
    node = cluster[0]
    for words, expected in (
        (("EXPEL", node.id), "itself"),
        (("EXPEL", key_of(node)), "itself"),
        (("EXPEL", "f" * 40), "No key of node"),
        (("EXPEL", "f" * 41), "64 hex"),
        (("READMIT", key_of(cluster[1])), "not expelled"),
        (("MEET", HOST, 7711, "KEY", "zz"), "64 hex"),
        (("MEET", HOST, 7711, "COIN", key_of(node)), "syntax"),
    ):
        reply = node.ask("CLUSTER", *words)
        assert isinstance(reply, hiredis.ReplyError), words
        assert expected in str(reply)


def names_all_keys(node: Member) -> bool:
    return node.cluster_info()["cluster_identity_missing"] == "0"


def test_a_loaded_cluster_is_changed_node_by_node(tmp_path: Path) -> None:
    options = ("--cluster-identity", "no", "--appendonly", "yes", "--appendfsync", "always")
    with live_cluster(tmp_path, 3, *options) as cluster, load_on(cluster) as load:
        load.produce(cluster, "REPLICATE", 2)
        load.consume(cluster)
        at = cluster[0].options.index("--cluster-identity") + 1
        for value in ("optional", "yes"):
            for node in cluster:
                load.wait_confirmed(50)
                assert node.stop() == 0
                node.options[at] = value
                if value == "yes":
                    node.options += ["--cluster-encrypt", "yes"]
                node.start()
                cluster.wait_joined()
            for node in cluster:
                wait_until(partial(names_all_keys, node))
        load.wait_confirmed(50)
        load.finish()
        job_goes_round(cluster)


def test_a_damaged_file_stops_the_start(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 2, *IDENTITY) as cluster:
        node = cluster[0]
        node.close()
        for name, text in (("nodes.conf.key", "nonsense"), ("nodes.conf.keys", "pin a b c\n")):
            file = node.directory / name
            good = file.read_bytes()
            shutil.copy(file, tmp_path / name)
            file.write_text(text)
            node.spawn()
            assert node.process.wait(60) == 1
            assert name in node.log.read_text().splitlines()[-1]
            file.write_bytes(good)
        node.start()
        cluster.wait_joined()
