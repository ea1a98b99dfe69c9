"""Disque for Celery: a transport for tasks, and a backend for results.

Importing this module registers ``disque://`` and ``disques://`` with Celery, for ``broker_url`` and
``result_backend``; see docs/celery.md.
"""

from disque_trio.extras import how_to_install

try:
    from celery.app.backends import BACKEND_ALIASES
    from kombu.transport import TRANSPORT_ALIASES
except ImportError as error:
    raise ImportError(f"Celery is not installed: {how_to_install('celery')}") from error

for scheme in ("disque", "disques"):
    TRANSPORT_ALIASES[scheme] = f"{__name__}.transport:Transport"
    BACKEND_ALIASES[scheme] = f"{__name__}.backend:Backend"
