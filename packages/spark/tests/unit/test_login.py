"""How Spark's sources and sinks log in to a node: options, users and TLS."""

import pickle
from pathlib import Path

import pytest

from disque_spark.client import BlockingClient, WireError
from disque_spark.options import OptionError, login_of
from disque_trio.respclient.login import Login
from disque_trio.respclient.tls import Tls
from tests.support.scripted_node import ScriptedNode
from tests.support.tls_front import all_certificates, tls_front


def test_options_say_how_to_get_in() -> None:
    assert login_of({}) == Login()
    assert login_of({"username": "u", "password": "p"}) == Login("u", "p")
    assert login_of({"clientName": "etl"}) == Login(client_name="etl")
    assert login_of({"tls": "true"}) == Login(tls=Tls())
    named = {"tlsCaFile": "/ca", "tlsCertFile": "file:/c", "tlsKeyFile": "/k"}
    more = {"tlsServerName": "n", "tlsCheckHostname": "false", "tlsInsecure": "true"}
    found = login_of({"tls": "true", **named, **more})
    assert found.tls == Tls("/ca", "/c", "/k", False, "n", verify=False)
    assert pickle.loads(pickle.dumps(found)) == found
    assert login_of({"TLS": "True", "TLSCAFILE": "/ca"}).tls == Tls("/ca")


@pytest.mark.parametrize(
    "options",
    [{"tlsCaFile": "/f"}, {"tls": "maybe"}, {"tls": "true", "tlsKeyFile": "/k"}],
)
def test_conflicting_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="tls"):
        login_of(options)


def test_a_name_that_no_node_would_take_is_refused() -> None:
    with pytest.raises(OptionError, match="clientName"):
        login_of({"clientName": "a b"})


def test_the_client_of_a_task_speaks_tls(tmp_path: Path) -> None:
    certificates = all_certificates(tmp_path)
    with ScriptedNode(lambda _: b"+PONG\r\n") as node:
        target = int(node.address.rpartition(":")[2])
        with tls_front(certificates.server(), target) as front:
            at = f"127.0.0.1:{front.port}"
            with BlockingClient([at], Login(tls=Tls(certificates.ca))) as client:
                client.call("PING")
            with (
                BlockingClient([at], Login(tls=Tls(certificates.other))) as client,
                pytest.raises(WireError, match="certificate verify failed"),
            ):
                client.call("PING")


def test_an_address_that_a_node_has_told_and_nobody_can_read_is_one_that_nobody_can_reach() -> None:
    client = BlockingClient(['"><img/src=x>:7711'])
    with pytest.raises(WireError, match="no node can be reached: expected an address"):
        client.call("HELLO")
