"""Traces jobs with OpenTelemetry: ``disque_integrations.otel.instrument()``; see docs/tracing.md.

Needs the extra ``otel``, which installs OpenTelemetry's API. What happens to spans and metrics is
up to the SDK, and to the providers that the program sets up with it.
"""

from disque_trio.extras import how_to_install

try:
    from opentelemetry import metrics, trace
except ImportError as error:
    raise ImportError(f"OpenTelemetry is not installed: {how_to_install('otel')}") from error

from typing import Any, Final, get_args

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from disque_integrations.otel.instruments import Instruments
from disque_integrations.otel.spans import Parents, Spans
from disque_trio.client import tracing
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
    """Trace all clients of this process from now on, including those of tasks, workers and the
    outbox. Another call replaces the settings of the previous one.

    Args:
        tracer_provider, meter_provider: None means the global ones, even if they are set later.
        parents: when the span that adds a job becomes the parent of the spans that receive and
            process it: ``alone``, if there is no other current span; ``always``, even then, and the
            other span is linked; ``never``. In any case, the span that adds the job is linked.

    Raises:
        ValueError: ``parents`` is not one of these.
    """
    if parents not in get_args(Parents):
        raise ValueError(f"parents must be one of {', '.join(get_args(Parents))}, not {parents!r}")
    tracer = trace.get_tracer(_SCOPE, VERSION, tracer_provider, _SCHEMA)
    meter = metrics.get_meter(_SCOPE, VERSION, meter_provider, _SCHEMA)
    tracing.use(Spans(tracer, Instruments(meter), parents))


def uninstrument() -> None:
    """Stop tracing. Spans that have begun still end normally."""
    tracing.use(None)


class Instrumentor:
    """The instrumentor that ``opentelemetry-instrument`` finds by its entry point."""

    def instrument(self, **options: Any) -> None:
        """Like the function ``instrument``. Ignores OpenTelemetry's other options."""
        providers = ("tracer_provider", "meter_provider")
        instrument(**{name: options[name] for name in providers if options.get(name) is not None})

    def uninstrument(self, **options: Any) -> None:
        """Like the function ``uninstrument``."""
        uninstrument()
