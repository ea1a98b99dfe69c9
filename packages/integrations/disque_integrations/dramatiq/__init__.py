"""Dramatiq on Disque: ``dramatiq.set_broker(DisqueBroker(url="disque://127.0.0.1:7711"))``.

Messages are jobs. A node pushes as many to each consumer as Dramatiq prefetches. WORKING keeps them
as long as the worker lives, and they are acknowledged without waiting for a reply. The nodes
implement delays, so there are no delay queues.
"""

from disque_trio.extras import how_to_install

try:
    import dramatiq as _dramatiq  # noqa: F401
except ImportError as error:
    raise ImportError(f"Dramatiq is not installed: {how_to_install('dramatiq')}") from error

from disque_integrations.dramatiq.broker import DisqueBroker
from disque_integrations.dramatiq.consumer import DisqueConsumer, DisqueMessage
from disque_integrations.dramatiq.results import DisqueBackend

__all__ = ["DisqueBackend", "DisqueBroker", "DisqueConsumer", "DisqueMessage"]
