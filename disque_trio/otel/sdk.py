"""OpenTelemetry's SDK, for programs of ours that have no place where a user could set it up."""

import os
import threading
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry import metrics, trace

from disque_trio.otel import instrument

_EXPORTERS: Final = ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER")


class SetupError(Exception):
    """The SDK cannot be set up; the text says why, in a line."""


def configure() -> None:
    """Set the SDK up as the environment says (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME and
    the others), with the distribution of OpenTelemetry that is installed, if there is one; then
    trace. A program that has set a provider keeps it.

    Raises:
        SetupError: there is no SDK, or no exporter of that name.
    """
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        try:
            _set_up()
        except ImportError as error:
            raise SetupError(
                f"no OpenTelemetry SDK: pip install opentelemetry-sdk ({error})"
            ) from error
        except Exception as error:
            said = " ".join(str(error).split())
            hint = ": pip install opentelemetry-exporter-otlp" if "otlp" in said else ""
            raise SetupError(f"OpenTelemetry cannot be set up: {said}{hint}") from error
    instrument()


def _set_up() -> None:
    from opentelemetry.sdk._configuration import _OTelSDKConfigurator

    distributions = list(entry_points(group="opentelemetry_distro"))
    if distributions:
        distributions[0].load()().configure()
    elif not any(name in os.environ for name in _EXPORTERS):
        # As a distribution would say.
        os.environ.update(dict.fromkeys(_EXPORTERS, "otlp"))
    configurators = list(entry_points(group="opentelemetry_configurator"))
    kind: Any = configurators[0].load() if configurators else _OTelSDKConfigurator
    kind().configure(auto_instrumentation_version=None)


def flush(seconds: float) -> None:
    """Have what was traced and measured sent, before the process ends at once; at most for so
    long."""

    def send() -> None:
        for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
            force_flush = getattr(provider, "force_flush", None)
            if force_flush is not None:
                force_flush()

    # It may hang where nobody takes it, whatever time it is told.
    sending = threading.Thread(target=send, name="disque-flush", daemon=True)
    sending.start()
    sending.join(seconds)
