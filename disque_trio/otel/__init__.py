"""Traces jobs with OpenTelemetry: ``disque_trio.otel.instrument()``; see docs/tracing.md.

It needs the extra ``otel``, which is OpenTelemetry's API. What becomes of spans and metrics is up
to the SDK, and to the providers that the program sets up with it.
"""

from disque_trio.extras import how_to_install

try:
    from opentelemetry import metrics, trace
except ImportError as error:
    raise ImportError(f"OpenTelemetry is not installed: {how_to_install('otel')}") from error

from typing import Any, Final, get_args

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from disque_trio.client import tracing
from disque_trio.otel.instruments import Instruments
from disque_trio.otel.spans import Parents, Spans
from disque_trio.version import VERSION

__all__ = ["Instrumentor", "Parents", "instrument", "uninstrument"]

_SCOPE: Final = "disque_trio"
_SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"


def instrument(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    parents: Parents = "alone",
) -> None:
    """Trace all clients of this process, those of tasks, workers and the outbox included, from now
    on. Called again, it replaces what was said before.

    Args:
        tracer_provider, meter_provider: None: the global ones, also if they are set later.
        parents: where the span that adds a job is the parent of those that receive and process it:
            ``alone``, where no other span is current; ``always``, also where one is, which is
            linked then; ``never``: it is linked only. It is always linked.

    Raises:
        ValueError: ``parents`` is none of these.
    """
    if parents not in get_args(Parents):
        raise ValueError(f"parents is {', '.join(get_args(Parents))}, not {parents!r}")
    tracer = trace.get_tracer(_SCOPE, VERSION, tracer_provider, _SCHEMA)
    meter = metrics.get_meter(_SCOPE, VERSION, meter_provider, _SCHEMA)
    tracing.use(Spans(tracer, Instruments(meter), parents))


def uninstrument() -> None:
    """Trace no more. Spans that have begun are ended in their time."""
    tracing.use(None)


class Instrumentor:
    """What ``opentelemetry-instrument`` finds by the entry point ``opentelemetry_instrumentor``."""

    def instrument(self, **options: Any) -> None:
        """As the function; options of OpenTelemetry that mean nothing here are passed over."""
        providers = ("tracer_provider", "meter_provider")
        instrument(**{name: options[name] for name in providers if options.get(name) is not None})

    def uninstrument(self, **options: Any) -> None:
        """As the function."""
        uninstrument()
