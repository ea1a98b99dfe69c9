"""Names from OpenTelemetry's conventions for messaging, and their values for Disque."""

from typing import Final

from opentelemetry.trace import Span, Status, StatusCode

from disque_trio.notation.addresses import Address
from disque_trio.respclient.errors import ReplyError

SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
MESSAGE_ID: Final = "messaging.message.id"
COUNT: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"
OUTCOME: Final = "messaging.disque.outcome"
DELIVERY: Final = "messaging.disque.delivery"
"""The number of this delivery of the job, beginning with 1."""

Attributes = dict[str, str | int]


def attributes_of(
    operation: str, destination: str | None, address: Address | None, **more: str | int
) -> Attributes:
    """Return the attributes that a span has when it begins, which are also those of metrics."""
    attributes: Attributes = {SYSTEM: "disque", OPERATION: operation, OPERATION_TYPE: operation}
    if destination is not None:
        attributes[DESTINATION] = destination
    if address is not None:
        attributes["server.address"] = address.path or address.host
        if not address.path:
            attributes["server.port"] = address.port
    return attributes | more


def error_type(error: BaseException) -> str:
    """Return the kind of an error: the code of an error reply, else the name of its class."""
    return error.code if isinstance(error, ReplyError) else type(error).__qualname__


def mark_failed(span: Span, kind: str, text: str) -> None:
    """Mark a span as failed, with the kind and the text of the error."""
    span.set_attribute(ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, text))
