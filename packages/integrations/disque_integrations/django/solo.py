"""A process for one task: ``python -m disque_integrations.django.solo LINK``, started by a worker.

It sets Django up, runs the task, and says what is to be kept of it. The worker settles the job.
"""

import sys
from base64 import b64decode
from typing import Any

import django
from django.core.exceptions import ImproperlyConfigured

from disque_integrations.alone import NotAloneError, serve
from disque_trio.client.job import Job


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Run a task; return its record. Raises NotAloneError."""
    try:
        django.setup()
    except ImproperlyConfigured as error:
        raise NotAloneError(f"Django cannot be set up again: {error}") from error
    # Only now, since they read the settings.
    from disque_integrations.django.backend import DisqueBackend
    from disque_integrations.django.framework import task_backends
    from disque_integrations.django.worker import Worker

    backend = task_backends[order["backend"]]
    if not isinstance(backend, DisqueBackend):
        raise NotAloneError(f"the task backend {order['backend']!r} does not belong to Disque")
    job = Job(
        order["id"],
        order["queue"],
        b64decode(order["body"]),
        order["nacks"],
        order["additional_deliveries"],
    )
    return {"kept": Worker(backend, [], 1).run_one(job)}


if __name__ == "__main__":
    sys.exit(serve(run))
