"""The application, for INSTALLED_APPS."""

from typing import Any

from django.apps import AppConfig
from django.core import checks

from disque_integrations.django.backend import DisqueBackend
from disque_integrations.django.framework import task_backends
from disque_trio.client.sync.client import connect_to
from disque_trio.respclient.errors import DisqueError


class DisqueConfig(AppConfig):
    """Adds ``disque_worker`` and the checks."""

    name = "disque_integrations.django"
    label = "disque"
    verbose_name = "Disque"

    def ready(self) -> None:
        checks.register(nodes_are_there, "disque", deploy=True)


def nodes_are_there(**_: Any) -> list[checks.CheckMessage]:
    """Check that each backend can reach a node, for ``manage.py check --deploy``."""
    found: list[checks.CheckMessage] = []
    for backend in task_backends.all():
        if isinstance(backend, DisqueBackend) and not backend.check():
            cluster = backend.settings.cluster()
            try:
                connect_to(cluster, 0).close()
            except (DisqueError, ValueError) as error:
                text = f"the nodes of the task backend {backend.alias!r}: {error}"
                found.append(checks.Error(text, id="disque.E002"))
    return found
