"""URLs of clusters."""

import pytest

from disque_trio.client.urls import Cluster


def test_a_url_names_a_node() -> None:
    assert Cluster.parse("disque://a:7712") == Cluster(("a:7712",))


def test_the_port_is_7711_unless_it_is_given() -> None:
    assert Cluster.parse("disque://a").nodes == ("a:7711",)


def test_several_urls_are_one_cluster() -> None:
    cluster = Cluster.parse("disque://:p%40ss@a:1; disque://b:2")
    assert cluster == Cluster(("a:1", "b:2"), "p@ss")
    assert Cluster.parse("disque://:p%40ss@a:1,b:2") == cluster
    assert Cluster.parse(["disque://:p%40ss@a:1", "disque://b:2"]) == cluster


def test_a_socket_has_a_path() -> None:
    assert Cluster.parse("disque://unix:/run/disque.sock").nodes == ("unix:/run/disque.sock",)


def test_ipv6_addresses_keep_their_brackets() -> None:
    assert Cluster.parse("disque://[::1]:7711").nodes == ("[::1]:7711",)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "redis://a",
        "a:7711",
        "disque://",
        "disque://a:port",
        "disque://a/0",
        "disque://secret@a",
        "disque://a?db=1",
        "disque://:secret@a;disque://:other@b",
    ],
)
def test_what_is_no_url_of_a_cluster_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"node|cluster") as error:
        Cluster.parse(url)
    assert "secret" not in str(error.value)


def test_there_must_be_a_node() -> None:
    with pytest.raises(ValueError, match="no URL"):
        Cluster.parse([])
