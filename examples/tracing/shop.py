"""A web program whose traces continue in its worker: the program of tracing.md."""

import os

from flask import Flask
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from disque_integrations import otel
from disque_trio.tasks import Disque


def line(span: ReadableSpan) -> str:
    context, parent = span.get_span_context(), span.parent
    assert context is not None
    above = "-" * 16 if parent is None else f"{parent.span_id:016x}"
    ids = f"{context.trace_id:032x} {context.span_id:016x} in {above}"
    return f"process {os.getpid():<6} {span.name:<13} {ids}\n"


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line)))
trace.set_tracer_provider(provider)
otel.instrument()

tracer = trace.get_tracer("shop")
web = Flask(__name__)
app = Disque()  # where DISQUE_URL says, or else at disque://127.0.0.1:7711


@app.task(queue="mail", retries=5)
def send_mail(to: str) -> str:
    with tracer.start_as_current_span("SMTP"):
        return f"sent to {to}"


@web.post("/mails/<to>")
def add_mail(to: str) -> tuple[dict[str, str], int]:
    # opentelemetry-instrumentation-flask creates such a span for each request.
    with tracer.start_as_current_span("POST /mails"):
        mail = send_mail.add(to)
    return {"id": mail.id}, 202
