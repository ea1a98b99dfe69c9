"""Names of OpenTelemetry's conventions for messaging, and what they are for Disque."""

from typing import Final

from opentelemetry.trace import Span, Status, StatusCode

from disque_trio.respclient.addresses import Address
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
"""Which delivery of the job this is: 1 is the first."""

Attributes = dict[str, str | int]


def attributes_of(
    operation: str, destination: str | None, address: Address | None, **more: str | int
) -> Attributes:
    """The attributes that are there when a span begins, and those of metrics."""
    attributes: Attributes = {SYSTEM: "disque", OPERATION: operation, OPERATION_TYPE: operation}
    if destination is not None:
        attributes[DESTINATION] = destination
    if address is not None:
        attributes["server.address"] = address.path or address.host
        if not address.path:
            attributes["server.port"] = address.port
    return attributes | more


def error_type(error: BaseException) -> str:
    """The kind of an error: the code of an error reply, or else the name of its class."""
    return error.code if isinstance(error, ReplyError) else type(error).__qualname__


def mark_failed(span: Span, kind: str, text: str) -> None:
    """Say on a span that it failed, and how."""
    span.set_attribute(ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, text))
