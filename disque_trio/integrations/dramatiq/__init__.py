"""Dramatiq on Disque: ``dramatiq.set_broker(DisqueBroker(url="disque://127.0.0.1:7711"))``.

Messages are jobs. Each consumer has as many in hand as Dramatiq prefetches, which a node pushes;
they are kept by WORKING as long as the worker lives, and acknowledged as they are done, without
anybody waiting for the answer. Delays are kept by the nodes, so there are no delay queues.
"""

from disque_trio.extras import how_to_install

try:
    import dramatiq as _dramatiq  # noqa: F401
except ImportError as error:
    raise ImportError(f"Dramatiq is not installed: {how_to_install('dramatiq')}") from error

from disque_trio.integrations.dramatiq.broker import DisqueBroker
from disque_trio.integrations.dramatiq.consumer import DisqueConsumer, DisqueMessage
from disque_trio.integrations.dramatiq.results import DisqueBackend

__all__ = ["DisqueBackend", "DisqueBroker", "DisqueConsumer", "DisqueMessage"]
