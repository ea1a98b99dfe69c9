"""Sets up OpenTelemetry's SDK, for our commands, where users have no code to do so."""

import os
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry import trace

from disque_integrations.otel import instrument
from disque_trio.client.tracing import CannotTrace

_EXPORTERS: Final = ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER")


def configure() -> None:
    """Set up the SDK according to the environment (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME
    and others), using the installed OpenTelemetry distribution if there is one. Then trace. If the
    program has already set a provider, it is kept.

    Raises:
        CannotTrace: there is no SDK, or no exporter of that name.
    """
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        try:
            _set_up()
        except ImportError as error:
            raise CannotTrace(
                f"no OpenTelemetry SDK: pip install opentelemetry-sdk ({error})"
            ) from error
        except Exception as error:
            said = " ".join(str(error).split())
            hint = ": pip install opentelemetry-exporter-otlp" if "otlp" in said else ""
            raise CannotTrace(f"OpenTelemetry cannot be set up: {said}{hint}") from error
    instrument()


def _set_up() -> None:
    from opentelemetry.sdk._configuration import _OTelSDKConfigurator

    distributions = list(entry_points(group="opentelemetry_distro"))
    if distributions:
        distributions[0].load()().configure()
    elif not any(name in os.environ for name in _EXPORTERS):
        # What a distribution would set.
        os.environ.update(dict.fromkeys(_EXPORTERS, "otlp"))
    configurators = list(entry_points(group="opentelemetry_configurator"))
    kind: Any = configurators[0].load() if configurators else _OTelSDKConfigurator
    kind().configure(auto_instrumentation_version=None)
