"""URLs of clusters."""

import socket

import pytest

from disque_trio.client.urls import Cluster
from disque_trio.respclient.tls import Tls


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
def test_an_invalid_cluster_url_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"node|cluster") as error:
        Cluster.parse(url)
    assert "secret" not in str(error.value)


def test_at_least_one_node_is_required() -> None:
    with pytest.raises(ValueError, match="no URL"):
        Cluster.parse([])


def test_a_user_has_a_name() -> None:
    cluster = Cluster.parse("disque://b%40b:p%3Aw@a")
    assert (cluster.username, cluster.password) == ("b@b", "p:w")
    assert Cluster.parse("disque://bob:@a") == Cluster(("a:7711",), "", "bob")
    assert Cluster.parse("disque://:@a") == Cluster(("a:7711",))


def test_tls_has_a_scheme_and_options_of_its_own() -> None:
    assert Cluster.parse("disques://a").tls == Tls()
    assert Cluster.parse(
        "disques://u:p@a,b:1?ssl_ca_certs=/ca%2Cs.pem&ssl_certfile=c&ssl_keyfile=k&ssl_server_name=name"
        "&ssl_check_hostname=False"
    ) == Cluster(
        ("a:7711", "b:1"),
        "p",
        "u",
        Tls("/ca,s.pem", "c", "k", check_hostname=False, server_name="name"),
    )
    assert Cluster.parse(
        ["disques://a?ssl_cert_reqs=none", "disques://b?ssl_ca_path=d"]
    ).tls == Tls(ca_dir="d", verify=False)


@pytest.mark.parametrize(
    "url",
    [
        "disques://unix:/s",
        "disque://a?ssl_ca_certs=f",
        "disques://a?ssl_ca_certs=f,b?ssl_ca_certs=g",
        "disques://a?ssl_ca_certs=",
        "disques://a?cacert=f",
        "disques://a?ssl_check_hostname=maybe",
        "disques://a?x",
        "disques://a,disque://b",
    ],
)
def test_options_that_conflict_with_tls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"node|cluster"):
        Cluster.parse(url)


@pytest.mark.parametrize(
    "url",
    [
        "disque://:SECRET",
        "disque://user:SECRET",
        "disque://user:SECRET@a:port",
        "disque://user:SECRET@a,user:other@b",
        "disque://:x,SECRET@a",
        "disque://:SECRET,x@a",
        "disque://:x@SECRET:y,z@a",
        "disques://user:SECRET@a?nosuch=1",
        "disque://user:SECRET@a?ssl_ca_certs=f",
        "redis://user:SECRET@a",
    ],
)
def test_no_error_shows_a_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"node|URL") as error:
        Cluster.parse(url)
    shown = error.value
    while shown is not None:
        assert "SECRET" not in str(shown)
        shown = shown.__cause__  # type: ignore[assignment]
    assert "SECRET" not in repr(Cluster(("a",), "SECRET"))


def test_addresses_are_completed_by_separate_options() -> None:
    assert Cluster.of("a", "u", "p", True) == Cluster(("a:7711",), "p", "u", True)
    assert Cluster.of(["a:1", "unix:/s"]) == Cluster(("a:1", "unix:/s"))
    # The parts of a URL take precedence.
    assert Cluster.of("disque://v:q@a", "u", "p") == Cluster(("a:7711",), "q", "v")
    assert Cluster.of("disque://a,b", "u", "p") == Cluster(("a:7711", "b:7711"), "p", "u")
    assert Cluster.of(["disques://a", "b"], tls=True).tls == Tls()
    with pytest.raises(ValueError, match="port"):
        Cluster.of("a:b")


def test_the_text_of_a_cluster_has_its_nodes_without_secrets() -> None:
    cluster = Cluster.parse("disques://u:SECRET@a,b")
    assert cluster.urls == ["disques://a:7711", "disques://b:7711"]
    assert cluster.only("c:1") == Cluster(("c:1",), "SECRET", "u", Tls())
    assert cluster.login.auth == ["AUTH", "u", "SECRET"]


@pytest.mark.parametrize(
    ("text", "verify"),
    [
        ("required", True),
        ("CERT_REQUIRED", True),
        ("optional", True),
        ("none", False),
        ("CERT_NONE", False),
    ],
)
def test_verification_has_the_same_options_as_in_kombu(text: str, verify: bool) -> None:
    assert Cluster.parse(f"disques://a?ssl_cert_reqs={text}").tls == Tls(verify=verify)


def test_a_url_may_name_its_connections() -> None:
    assert Cluster.parse("disque://a?client_name=shop%2D1").client_name == "shop-1"
    both = Cluster.parse("disques://a?client_name=shop&ssl_ca_certs=f")
    assert (both.client_name, both.tls) == ("shop", Tls("f"))
    assert Cluster.of("disque://a?client_name=shop", client_name="other").client_name == "shop"
    assert Cluster.of("a", client_name="shop").login.naming == ["CLIENT", "SETNAME", "shop"]
    assert Cluster.of("a").login.naming is None
    assert both.only("b:1").client_name == "shop"


@pytest.mark.parametrize("name", ["", "a b", "a\n", "\x1b[2J", "näme", "a\r\nSHUTDOWN"])
def test_connection_names_that_no_node_would_accept_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="visible ASCII"):
        Cluster.of("a", client_name=name)


def test_connections_without_a_name_are_named_after_the_program() -> None:
    name = Cluster.parse("disque://a").named_after("disque-worker").client_name
    assert name is not None
    program, host, pid = name.split(":")
    assert (program, pid.isdecimal()) == ("disque-worker", True)
    assert host == socket.gethostname()
    mine = Cluster.parse("disque://a?client_name=mine")
    assert mine.named_after("disque-worker") is mine
