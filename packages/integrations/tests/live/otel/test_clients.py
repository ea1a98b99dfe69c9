"""Traces of the clients on a real node: Trio, asyncio and threads."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
import trio
from opentelemetry import baggage, trace
from opentelemetry import context as contexts
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode

from disque_trio.client import AddManyError, CallError, Client, HeldJob, MaxLenError, connect, sync
from packages.integrations.tests.support.spans import (
    Traces,
    attributes_of,
    id_of,
    links_of,
    parent_of,
    traced,
)
from tests.support.harness import HANG_SECONDS, LiveNode


@pytest.fixture
async def client(node: LiveNode) -> AsyncIterator[Client]:
    async with connect(f"127.0.0.1:{node.port}") as client:
        yield client


def is_sampled(traceparent: str) -> bool:
    return bool(int(traceparent[-2:], 16) & 1)


async def process_one(client: Client, queue: str) -> str | None:
    """Take one job in a loop and acknowledge it; return its traceparent."""
    async with client.jobs(queue) as jobs:
        async for job in jobs:
            await job.ack()
            return job.headers.get("traceparent", b"").decode() or None
    return None


async def test_a_trace_goes_through_the_queue(
    client: Client, node: LiveNode, traces: Traces
) -> None:
    with traces.tracer.start_as_current_span("request") as request:
        id = await client.add("mail", "hello")
    parent = await process_one(client, "mail")
    send, receive, process = (traces.one(f"{name} mail") for name in ("send", "receive", "process"))
    assert parent is not None
    assert parent[3:-3] == id_of(send)
    assert is_sampled(parent)
    assert parent_of(send) == id_of(traces.one("request"))
    assert parent_of(receive) == parent_of(process) == id_of(send)
    assert links_of(receive) == links_of(process) == [id_of(send)]
    assert send.kind is SpanKind.PRODUCER
    assert receive.kind is SpanKind.CLIENT
    assert process.kind is SpanKind.CONSUMER
    common = {
        "messaging.system": "disque",
        "messaging.destination.name": "mail",
        "messaging.message.id": id,
        "server.address": "127.0.0.1",
        "server.port": node.port,
    }
    for span, name in ((send, "send"), (receive, "receive"), (process, "process")):
        named = {"messaging.operation.name": name, "messaging.operation.type": name}
        assert attributes_of(span).items() >= {**common, **named}.items()
        assert span.status.status_code is StatusCode.UNSET
    assert attributes_of(process)["messaging.disque.outcome"] == "ack"
    assert attributes_of(process)["messaging.disque.delivery"] == 1
    assert request.get_span_context().trace_id == process.context.trace_id


async def test_the_body_of_a_loop_belongs_to_its_job_until_that_is_settled(
    client: Client, traces: Traces
) -> None:
    await client.add_many("mail", ["a", "b"])
    before = contexts.get_current()
    seen = []
    async with client.jobs("mail") as jobs:
        async for job in jobs:
            await client.add("audit", job.body)
            seen.append(trace.get_current_span())
            if len(seen) == 2:
                break
            await job.ack()
            assert contexts.get_current() is before
    assert contexts.get_current() is before
    first, second = sorted(traces.named("process mail", 2), key=lambda span: span.start_time or 0)
    assert [id_of(span) for span in (first, second)] == [  # type: ignore[arg-type]
        id_of(span) for span in seen
    ]
    assert [parent_of(span) for span in traces.named("send audit", 2)] == [
        id_of(first),
        id_of(second),
    ]
    assert attributes_of(second)["messaging.disque.outcome"] == "nack"  # the loop was left


async def test_a_loop_that_is_left_early_leaves_the_context(client: Client, traces: Traces) -> None:
    await client.add("mail", "a")
    before = contexts.get_current()
    async for _job in client.jobs("mail"):
        assert contexts.get_current() is not before
        break
    assert contexts.get_current() is before
    while len(traces.all()) < 3:
        await trio.sleep(0.001)
    assert traces.one("process mail").status.status_code is StatusCode.ERROR


async def test_a_job_that_another_task_has_settled_is_no_parent(
    client: Client, traces: Traces
) -> None:
    await client.add_many("mail", ["a", "b"])
    jobs = client.jobs("mail")
    async with jobs:
        async for job in jobs:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(job.ack)
            await client.add("audit", job.body)
            if job.body == b"b":
                break
    send = traces.one("send mail")
    assert {parent_of(span) for span in traces.named("process mail", 2)} == {id_of(send)}
    assert {parent_of(span) for span in traces.named("send audit", 2)} == {None}


async def test_many_jobs_are_sent_in_one_span(client: Client, traces: Traces) -> None:
    await client.add_many("mail", ["a", "b", "c"])
    [job, *others] = await client.get("mail", count=10, withheaders=True)
    send, receive = traces.one("send mail"), traces.one("receive mail")
    assert attributes_of(send)["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in attributes_of(send)
    parents = {one.headers["traceparent"].decode()[3:-3] for one in (job, *others)}
    assert parents == {id_of(send)}
    assert attributes_of(receive)["messaging.batch.message_count"] == 3
    assert links_of(receive) == [id_of(send)] * 3
    assert parent_of(receive) is None


async def test_a_fetched_job_continues_the_trace(client: Client, traces: Traces) -> None:
    await client.add("mail", "a")
    [job] = await client.get("mail")
    receive = traces.one("receive mail")
    assert parent_of(receive) == id_of(traces.one("send mail"))
    assert attributes_of(receive)["messaging.message.id"] == job.id
    assert await client.get("mail", nohang=True) == []
    assert len(traces.named("receive mail")) == 1  # no job, no other span


async def test_errors_are_recorded(client: Client, traces: Traces) -> None:
    await client.add("mail", "a")
    with pytest.raises(MaxLenError):
        await client.add("mail", "b", maxlen=1)
    with pytest.raises(AddManyError):
        await client.add_many("mail", ["b", "c"], maxlen=1)
    _, one, many = traces.named("send mail", 3)
    for span in (one, many):
        assert span.status.status_code is StatusCode.ERROR
        assert attributes_of(span)["error.type"] == "MAXLEN"
    assert (many.status.description or "").startswith("2 of 2")


async def test_a_handler_that_fails_is_an_error(client: Client, traces: Traces) -> None:
    await client.add("mail", "a")
    runs: list[HeldJob] = []

    async def handle(job: HeldJob) -> None:
        runs.append(job)
        if len(runs) == 1:
            raise ValueError("no such address")
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.work, handle, "mail")
    first, second = traces.named("process mail", 2)
    assert first.status.status_code is StatusCode.ERROR
    assert first.status.description == "no such address"
    assert attributes_of(first)["error.type"] == "ValueError"
    assert attributes_of(first)["messaging.disque.outcome"] == "nack"
    assert [event.name for event in first.events] == ["exception"]
    assert attributes_of(second)["messaging.disque.delivery"] == 2
    send = id_of(traces.one("send mail"))
    assert links_of(first) == links_of(second) == [send]
    assert parent_of(first) == parent_of(second) == send


@pytest.mark.parametrize("how", ["nack", "dead", "requeue", "release", "fastack"])
async def test_the_outcome_of_a_job_is_recorded(client: Client, traces: Traces, how: str) -> None:
    await client.set_policy("mail", dead="mail.dead")
    await client.add("mail", "a")
    async with client.jobs("mail") as jobs:
        async for job in jobs:
            if how in ("nack", "dead"):
                await getattr(job, how)(reason="line is busy")
            elif how == "release":
                job.release()
            else:
                await getattr(job, how)()
            break
    span = traces.one("process mail")
    outcome = "ack" if how == "fastack" else how
    assert attributes_of(span)["messaging.disque.outcome"] == outcome
    is_error = how in ("nack", "dead")
    assert (span.status.status_code is StatusCode.ERROR) == is_error
    assert span.status.description == ("line is busy" if is_error else None)


async def test_a_call_is_a_trace_through_its_server(client: Client, traces: Traces) -> None:
    async def count(job: HeldJob) -> str:
        if job.body == b"bad":
            raise ValueError("bad")
        return str(trace.get_current_span().get_span_context().trace_id)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.serve, "words", count)
        with traces.tracer.start_as_current_span("request") as request:
            answer = await client.call("words", "one two", timeout=HANG_SECONDS)
            assert int(answer) == request.get_span_context().trace_id
        with pytest.raises(CallError):
            await client.call("words", "bad", timeout=HANG_SECONDS)
        nursery.cancel_scope.cancel()
    first, second = traces.named("process words", 2)
    sends = traces.named("send words", 2)
    assert [parent_of(first), parent_of(second)] == [id_of(span) for span in sends]
    assert second.status.status_code is StatusCode.ERROR


async def test_headers_of_the_program_stay(client: Client, traces: Traces) -> None:
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    pairs = [("traceparent", own), ("tenant", "acme")]
    await client.add("mail", "a", headers=iter(pairs))
    [job] = await client.get("mail", withheaders=True)
    assert job.header_pairs == tuple((name, value.encode()) for name, value in pairs)
    send = traces.one("send mail")
    assert send.kind is SpanKind.CLIENT
    assert links_of(send) == [own[3:-3]]
    await client.add("mail", "a", headers={"tenant": "acme"})
    [job] = await client.get("mail", withheaders=True)
    assert job.headers.keys() == {"tenant", "traceparent"}


async def test_tracestate_and_baggage_are_passed_on(client: Client, traces: Traces) -> None:
    with trace.use_span(traces.tracer.start_span("request")):
        token = contexts.attach(baggage.set_baggage("tenant", "acme"))
        await client.add("mail", "a")
        contexts.detach(token)
    async with client.jobs("mail") as jobs:
        async for _ in jobs:
            assert baggage.get_baggage("tenant") == "acme"
            break
    assert baggage.get_baggage("tenant") is None


async def test_an_unsampled_trace_is_continued(client: Client) -> None:
    with traced(sampler=ParentBased(ALWAYS_OFF)) as traces:
        await client.add("mail", "a")
        async with client.jobs("mail", withheaders=True) as jobs:
            async for job in jobs:  # noqa: B007
                await client.add("audit", "b")
                break
        [audit] = await client.get("audit", withheaders=True)
        first, second = (one.headers["traceparent"].decode() for one in (job, audit))
        assert first[:35] == second[:35]
        assert not is_sampled(first)
        assert not is_sampled(second)
        assert traces.all() == []


async def test_the_current_span_of_the_program_is_the_parent(client: Client) -> None:
    for parents, is_parent in (("alone", "poll"), ("always", "send mail"), ("never", "poll")):
        with traced(parents) as traces:  # type: ignore[arg-type]
            await client.add("mail", "a")
            with traces.tracer.start_as_current_span("poll"):
                await process_one(client, "mail")
            send, process, poll = map(traces.one, ("send mail", "process mail", "poll"))
            assert parent_of(process) == id_of(traces.one(is_parent))
            both = [id_of(send), id_of(poll)]
            assert links_of(process) == (both if parents == "always" else both[:1])


async def test_spans_can_be_linked_only(client: Client) -> None:
    with traced("never") as traces:
        await client.add("mail", "a")
        await process_one(client, "mail")
        send, process = traces.one("send mail"), traces.one("process mail")
        assert parent_of(process) is None
        assert links_of(process) == [id_of(send)]


async def test_metrics_are_measured(client: Client, traces: Traces) -> None:
    await client.add_many("mail", ["a", "b"])
    with pytest.raises(MaxLenError):
        await client.add("mail", "c", maxlen=1)
    await process_one(client, "mail")
    await client.get("mail")
    sent = {
        point.attributes.get("error.type"): point.value
        for point in traces.metric("messaging.client.sent.messages")
    }
    assert sent == {None: 2, "MAXLEN": 1}
    consumed = traces.metric("messaging.client.consumed.messages")
    assert sum(point.value for point in consumed) == 2
    [processed] = traces.metric("messaging.process.duration")
    assert processed.count == 1
    operations = traces.metric("messaging.client.operation.duration")
    names = {point.attributes["messaging.operation.name"] for point in operations}
    assert names == {"send", "receive"}
    assert {point.attributes["messaging.system"] for point in operations} == {"disque"}


def test_asyncio_tasks_each_have_their_trace(node: LiveNode, traces: Traces) -> None:
    async def request(client: Client, n: int) -> None:
        with traces.tracer.start_as_current_span(f"request {n}"):
            await client.add("mail", str(n))

    async def main() -> None:
        async with connect(f"127.0.0.1:{node.port}") as client, asyncio.TaskGroup() as group:
            for n in range(3):
                group.create_task(request(client, n))

            async def handle(job: HeldJob) -> None:
                await client.add("done", job.body)
                if await client.qlen("done") == 3:
                    worker.cancel()

            worker = group.create_task(client.work(handle, "mail", concurrency=2))

    asyncio.run(main())
    assert_traces(traces)


def test_threads_each_have_their_trace(node: LiveNode, traces: Traces) -> None:
    with sync.connect(f"127.0.0.1:{node.port}") as client:

        def request(n: int) -> None:
            with traces.tracer.start_as_current_span(f"request {n}"):
                client.add("mail", str(n))

        threads = [threading.Thread(target=request, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        before = contexts.get_current()
        with client.jobs("mail") as jobs:
            for job in jobs:
                client.add("done", job.body)
                job.ack()
                if client.qlen("done") == 2:
                    break
        assert contexts.get_current() is before

        def handle(job: sync.HeldJob) -> None:
            client.add("done", job.body)
            raise SystemExit

        with pytest.raises(SystemExit):
            client.work(handle, "mail")
    assert contexts.get_current() is before
    assert_traces(traces)


def assert_traces(traces: Traces) -> None:
    """Check for three requests, each with its own trace through a queue and its handler."""
    requests = [traces.one(f"request {n}") for n in range(3)]
    done = traces.named("send done", 3)
    assert {span.context.trace_id for span in requests} == {span.context.trace_id for span in done}
    processes = {id_of(span) for span in traces.all() if span.name == "process mail"}
    assert {parent_of(span) for span in done} <= processes


async def test_nothing_is_traced_any_more(client: Client) -> None:
    with traced() as traces:
        pass
    await client.add("mail", "a")
    [job] = await client.get("mail", withheaders=True)
    assert job.headers == {}
    assert traces.all() == []
