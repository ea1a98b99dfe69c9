"""URLs of clusters."""

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
def test_what_is_no_url_of_a_cluster_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"node|cluster") as error:
        Cluster.parse(url)
    assert "secret" not in str(error.value)


def test_there_must_be_a_node() -> None:
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
def test_what_does_not_go_together_with_tls_is_refused(url: str) -> None:
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
def test_no_error_tells_a_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"node|URL") as error:
        Cluster.parse(url)
    shown = error.value
    while shown is not None:
        assert "SECRET" not in str(shown)
        shown = shown.__cause__  # type: ignore[assignment]
    assert "SECRET" not in repr(Cluster(("a",), "SECRET"))


def test_addresses_get_what_is_given_beside_them() -> None:
    assert Cluster.of("a", "u", "p", True) == Cluster(("a:7711",), "p", "u", True)
    assert Cluster.of(["a:1", "unix:/s"]) == Cluster(("a:1", "unix:/s"))
    # What a URL says comes first.
    assert Cluster.of("disque://v:q@a", "u", "p") == Cluster(("a:7711",), "q", "v")
    assert Cluster.of("disque://a,b", "u", "p") == Cluster(("a:7711", "b:7711"), "p", "u")
    assert Cluster.of(["disques://a", "b"], tls=True).tls == Tls()
    with pytest.raises(ValueError, match="port"):
        Cluster.of("a:b")


def test_a_cluster_names_its_nodes_without_its_secrets() -> None:
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
def test_whether_to_verify_is_said_as_in_urls_of_kombu(text: str, verify: bool) -> None:
    assert Cluster.parse(f"disques://a?ssl_cert_reqs={text}").tls == Tls(verify=verify)
