"""Makes Dramatiq's actors run in the traces of their messages."""

from typing import Any

from dramatiq.broker import Broker, MessageProxy
from dramatiq.middleware import Middleware

from disque_integrations.dramatiq.consumer import DisqueMessage
from disque_trio.client.tracing import Processing


class Traces(Middleware):
    """Reports the processing of messages to ``disque_integrations.otel``, in the threads of the
    worker."""

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        processing = _of(message)
        if processing is not None:
            processing.activate()
            processing.describe("task", message.actor_name)

    def after_process_message(
        self,
        broker: Broker,
        message: MessageProxy,
        *,
        result: Any = None,
        exception: BaseException | None = None,
    ) -> None:
        processing = _of(message)
        if processing is not None:
            if exception is not None:
                processing.failed(exception)
            processing.leave()

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        processing = _of(message)
        if processing is not None:
            processing.leave()


def _of(message: MessageProxy) -> Processing | None:
    return message.job.processing if isinstance(message, DisqueMessage) else None
