"""Integrations that name their connections."""

from celery import Celery
from kombu import Connection

import disque_integrations.celery  # noqa: F401 - makes the transport known
from disque_integrations.dramatiq import DisqueBroker
from tests.support.harness import LiveNode
from tests.support.live_helpers import client_lines


def names(node: LiveNode) -> set[str]:
    """Return the names of the connections of a node."""
    wire = node.wire()
    try:
        return {line["name"] for line in client_lines(wire)} - {""}
    finally:
        wire.close()


def test_celery_names_the_connections_of_broker_and_backend(shared_node: LiveNode) -> None:
    url = f"disque://127.0.0.1:{shared_node.port}"
    with Connection(url, transport_options={"client_name": "shop"}) as connection:
        connection.connect()
        assert "shop" in names(shared_node)
    app = Celery(broker=url, backend="disque://")
    app.conf.broker_transport_options = {"client_name": "broker"}
    assert app.AsyncResult("nothing").state == "PENDING"
    assert "broker" in names(shared_node)
    app.close()


def test_dramatiq_uses_the_name_in_its_url(shared_node: LiveNode) -> None:
    broker = DisqueBroker(url=f"disque://127.0.0.1:{shared_node.port}?client_name=mailer")
    try:
        assert broker.client.address is not None
        assert "mailer" in names(shared_node)
    finally:
        broker.close()
