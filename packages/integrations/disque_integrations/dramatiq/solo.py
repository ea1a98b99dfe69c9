"""A process for one message: ``python -m disque_integrations.dramatiq.solo LINK``, started by a
consumer.

It loads the program as ``dramatiq`` does, and has one of Dramatiq's own threads process the
message, so that all middleware is there. The consumer settles the message.
"""

import importlib
import logging
import sys
import threading
from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import dramatiq.broker
from dramatiq.broker import Broker, Consumer, MessageProxy
from dramatiq.cli import LOGFORMAT, VERBOSITY, import_broker, make_argument_parser
from dramatiq.errors import ActorNotFound
from dramatiq.message import Message
from dramatiq.worker import ConsumerThread, Worker, _WorkQueueItem

from disque_integrations.alone import NotAloneError, serve
from disque_integrations.dramatiq.taken import TakenMessage, reason_of

_NO_QUEUE: Final = "\0"
_TIMEOUT: Final = 100  # ms in which threads notice that they are to stop


class _One(Consumer):
    """Stands for the consumer of the queue, and notes how the message is settled."""

    def __init__(self) -> None:
        self.settled = threading.Event()
        self.said: dict[str, Any] = {}

    def ack(self, message: MessageProxy) -> None:
        assert isinstance(message, TakenMessage)
        outcome = "ack" if message.unsent is None else "back"
        self.said = {"outcome": outcome, "unsent": message.unsent, "reason": ""}
        self.settled.set()

    def nack(self, message: MessageProxy) -> None:
        self.said = {"outcome": "dead", "unsent": None, "reason": reason_of(message)}
        self.settled.set()

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Do nothing: there are none."""


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Process a message; return how it is settled. Raises NotAloneError."""
    broker, message = _load(), Message.decode(b64decode(order["body"]))
    try:
        actor = broker.get_actor(message.actor_name)
    except ActorNotFound as error:
        raise NotAloneError(f"the program has no such actor when it is imported: {error}") from None
    broker.emit_after("process_boot")
    worker = Worker(broker, queues={_NO_QUEUE}, worker_timeout=_TIMEOUT, worker_threads=1)
    worker.start()
    consumer = _One()
    thread = ConsumerThread(
        broker=broker,
        queue_name=message.queue_name,
        prefetch=1,
        work_queue=worker.work_queue,
        worker_timeout=_TIMEOUT,
    )
    thread.consumer = consumer
    worker.consumers[message.queue_name] = thread
    worker.work_queue.put(_WorkQueueItem(actor.priority, TakenMessage(message)))
    consumer.settled.wait()
    worker.work_queue.join()
    worker.consumers.clear()
    worker.stop()
    broker.close()
    return consumer.said


def _load() -> Broker:
    """Load the program, and return its broker. Raises NotAloneError."""
    if Path(sys.argv[0]).name == "dramatiq" or sys.argv[0].endswith("/dramatiq/__main__.py"):
        args = make_argument_parser().parse_args(sys.argv[1:])
        if not args.skip_logging:
            level = VERBOSITY.get(args.verbose, logging.DEBUG)
            logging.basicConfig(level=level, format=LOGFORMAT)
        for path in args.path:
            sys.path.insert(0, path)
        _, found = import_broker(args.broker)
        for module in args.modules:
            importlib.import_module(module)
    else:
        found = dramatiq.broker.global_broker
    if not isinstance(found, Broker):
        raise NotAloneError("the program sets no broker when it is imported")
    return found


if __name__ == "__main__":
    sys.exit(serve(run))
