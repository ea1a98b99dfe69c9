"""Adding jobs by tasks, with a test kit that only records them."""

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from disque_trio.client import ReplyError
from disque_trio.protocol.successor import successor_id
from disque_trio.protocol.trailer import DEAD
from disque_trio.tasks import Disque, Jobs, traceparent
from disque_trio.tasks.looking import letter_id


@pytest.fixture
def app() -> Disque:
    return Disque("disque://nowhere.invalid", name="shop")


def test_a_url_names_nodes_and_password() -> None:
    app = Disque("disque://:p%40ss@a,b:7712")
    assert (app.nodes, app.password) == (["a:7711", "b:7712"], "p@ss")
    with pytest.raises(ValueError, match="URL"):
        Disque("redis://a")


def test_without_a_url_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISQUE_URL", raising=False)
    assert Disque().nodes == ["127.0.0.1:7711"]
    monkeypatch.setenv("DISQUE_URL", "disque://:secret@elsewhere")
    app = Disque()
    assert (app.nodes, app.password) == (["elsewhere:7711"], "secret")
    assert "secret" not in repr(app)
    monkeypatch.setenv("DISQUE_URL", "secret@elsewhere")
    with pytest.raises(ValueError, match="the environment variable DISQUE_URL") as caught:
        Disque()
    assert "secret" not in str(caught.value)


def test_a_task_can_be_called_like_its_function(app: Disque) -> None:
    @app.task
    def double(n: int) -> int:
        """Twice."""
        return 2 * n

    @app.task(queue="mail")
    async def send(to: str) -> str:
        return f"sent {to}"

    assert (double(4), double.__name__, double.__doc__) == (8, "double", "Twice.")
    assert trio.run(send, "bob") == "sent bob"
    assert app.queues() == ["tasks", "mail"]


def test_an_added_job_has_arguments_options_and_headers(app: Disque) -> None:
    @app.task(queue="mail", name="send", priority=3, ttl=60)
    def send(to: str, *, subject: str = "") -> None: ...

    noon = datetime(2031, 2, 3, 12, tzinfo=UTC)
    with app.testing(run=False) as jobs:
        handle = send.add("bob", subject="hi")
        send.at(noon, "bob")
        send.add_in(1.5, "bob")
        send.options(queue="fast", priority=7, headers={"tenant": "acme"}, group=b"g").add("bob")
        send.options(note="for Ann", priority=None).bind("bob").add()
        send.map(["ann", ("bob",)])
        assert handle.get_state() == "pending"
    first, at, delayed, other, bound, *many = jobs.added
    assert first.id == handle.id
    assert (first.queue, first.task, first.args, first.kwargs) == (
        "mail",
        "send",
        ["bob"],
        {"subject": "hi"},
    )
    assert first.options == {"priority": 3, "ttl": 60, "retry": 6}
    assert first.headers == {"content-type": "application/json", "task": "send"}
    assert at.options["at"] == noon.timestamp()
    assert delayed.options["delay"] == 1.5
    assert (other.queue, other.headers["tenant"]) == ("fast", "acme")
    assert other.options == {"priority": 7, "ttl": 60, "retry": 6, "group": "g"}
    assert bound.options == {"ttl": 60, "retry": 6, "note": "for Ann"}
    assert [one.args for one in many] == [["ann"], ["bob"]]
    assert jobs.of("send") == jobs.added


@pytest.mark.parametrize(
    ("options", "retry"),
    [
        ({}, 30),
        ({"ttl": 3600}, 30),
        ({"ttl": 100}, 10),
        ({"ttl": 9}, 1),
        ({"redeliver_after": 0}, 0),
        ({"redeliver_after": 400}, 400),
    ],
)
def test_jobs_have_a_short_retry_time_unless_the_program_gives_one(
    app: Disque, options: dict[str, int], retry: int
) -> None:
    @app.task(**options)
    def work(n: int) -> None: ...

    with app.testing(run=False) as jobs:
        work.add(1)
        work.map([2, 3])
        work.bind(4).then(work.bind()).add()
        app.group([work.bind(6)], work.bind())
    assert [job.options["retry"] for job in jobs.added] == [retry] * len(jobs.added)
    assert len(jobs.added) >= 5


def test_wrong_arguments_are_refused_when_they_are_added(app: Disque) -> None:
    @app.task
    def send(to: str) -> None: ...

    add: Any = send.add
    with app.testing(run=False) as jobs:
        with pytest.raises(TypeError, match="to"):
            add()
        with pytest.raises(TypeError, match="JSON"):
            add(object())
        with pytest.raises(ValueError, match="headers"):
            send.options(headers={"task": "other"}).add("bob")
        with pytest.raises(ValueError, match="time zone"):
            send.at(datetime(2031, 1, 1), "bob")
    assert jobs.added == []


def test_delay_is_refused_since_it_means_now_elsewhere(app: Disque) -> None:
    @app.task
    def send(n: int) -> None: ...

    with app.testing(run=False) as jobs, pytest.raises(TypeError, match="add_in"):
        send.delay(5, 6)
    assert jobs.added == []


def test_headers_that_a_node_would_refuse_are_refused(app: Disque) -> None:
    @app.task
    def step(text: str) -> str:
        return text

    long = step.options(headers={"x": "y" * 70_000})
    with app.testing(run=False) as jobs, pytest.raises(ReplyError, match="HEADERS are longer"):
        long.add("first")
    assert jobs.added == []


def test_unique_jobs_are_added_once(app: Disque) -> None:
    @app.task(unique=True)
    def index(page: str, *, depth: int = 1) -> None: ...

    @app.task(unique=lambda order, **_: str(order))
    def ship(order: int, *, by: str) -> None: ...

    with app.testing(run=False) as jobs:
        ids = [index.add("a").id, index.add("a", depth=1).id, index.add(page="a").id]
        other = index.add("b").id
        ships = [ship.add(1, by="sea").id, ship.add(1, by="air").id, ship.add(2, by="air").id]
        again = index.options(unique=False).add("a").id
    assert len(set(ids)) == 1
    assert len({*ids, other, again}) == 3
    assert ships[0] == ships[1] != ships[2]
    assert len(jobs.added) == 5


def test_inside_a_task_nothing_is_added_before_await(app: Disque) -> None:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    async def add(jobs: Jobs) -> int:
        handle = double.add(4)
        with pytest.raises(RuntimeError, match="awaited"):
            handle.id  # noqa: B018
        with pytest.raises(RuntimeError, match="result"):
            handle.get()
        assert jobs.added == []
        assert (await handle) is handle
        assert (await handle).id == jobs.added[0].id
        assert len(jobs.added) == 1
        both = await double.map([1, 2])
        assert await both.results() == [2, 4]
        assert await both[1].state() == "done"
        return await double.add(5).result()

    with app.testing() as jobs:
        assert trio.run(add, jobs) == 10
    with app.testing() as jobs:
        assert asyncio.run(add(jobs)) == 10


def test_a_forgotten_await_causes_a_warning(app: Disque, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    async def forget() -> None:
        double.add(4)

    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    with app.testing() as jobs:
        trio.run(forget)
        gc.collect()
    assert jobs.added == []
    # In tests, warnings are errors; this one cannot be raised.
    assert [type(one.exc_value) for one in seen] == [RuntimeWarning]


def test_a_trace_context_is_passed_on(app: Disque, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def work() -> None: ...

    ours = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    with app.testing(run=False) as jobs:
        token = traceparent.set(ours)
        work.add()
        # OpenTelemetry is not installed here; this is what it returns for the current span.
        span = SimpleNamespace(is_valid=True, trace_id=0xAB, span_id=0xCD, trace_flags=1)
        current = SimpleNamespace(get_span_context=lambda: span)
        library = SimpleNamespace(get_current_span=lambda: current)
        monkeypatch.setitem(sys.modules, "opentelemetry.trace", library)  # type: ignore[arg-type]
        work.add()
        traceparent.reset(token)
    theirs = f"00-{0xAB:032x}-{0xCD:016x}-01"
    assert [one.headers["traceparent"] for one in jobs.added] == [ours, theirs]


def _rates(app: Disque) -> None:
    app.task(queue="q", rate="5/s")(lambda: None)
    app.task(queue="q", rate="6/s", name="b")(lambda: None)


def _names(app: Disque) -> None:
    app.task(name="a")(lambda: None)
    app.task(name="a")(lambda: None)


def _own(app: Disque) -> None:
    app.task(name="disque.mine")(lambda: None)


def _twice(app: Disque) -> None:
    task = app.task(name="a")(lambda: None)
    app.schedule("s", "@daily", task.bind())
    app.schedule("s", "@hourly", task.bind())


def _serializer(app: Disque) -> None:
    app.task(serializer="pickle")(lambda: None)


@pytest.mark.parametrize("define", [_rates, _names, _own, _twice, _serializer])
def test_contradictory_options_are_refused_at_once(
    app: Disque, define: Callable[[Disque], None]
) -> None:
    with pytest.raises(ValueError, match=r"rate|taken|name|serializer"):
        define(app)


def test_the_id_of_a_dead_letter_is_the_one_that_nodes_make() -> None:
    id = "D-95dfd41b-uzXCAkdG6tQf3Y0wJWTJjYPB-05a1"
    assert letter_id(id).encode() == successor_id(id.encode(), DEAD)


def _generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    "define",
    [
        lambda app: app.task(retries=-1),
        lambda app: app.task(backoff=(600, 1)),
        lambda app: app.task(backoff=5),
        lambda app: app.task(timeout=0),
        lambda app: app.task(timeout="1m"),
        lambda app: app.task(retries=1.5),
        lambda app: app.task(retries="3"),
        lambda app: app.task(backoff=("1", "2")),
        lambda app: app.task(process="yes"),
        lambda app: app.task(unique=5),
        lambda app: app.task(unique=True, replace="yes"),
        lambda app: app.task(throttle=2**32),
        lambda app: app.task(group_by="customer"),
        lambda app: app.task(unique_for=60),
        lambda app: app.task(name=""),
        lambda app: lambda _: app.task("a name"),
        lambda app: lambda _: app.task(partial(int, 1)),
        lambda app: lambda _: app.task(_generator),
        lambda app: lambda _: app.task(cron="@daily")(lambda argument: None),
    ],
)
def test_invalid_options_are_refused_when_a_task_is_defined(
    app: Disque, define: Callable[[Disque], Callable[[object], object]]
) -> None:
    with pytest.raises((TypeError, ValueError)):
        define(app)(lambda: None)
    assert app.core.tasks == {}
    assert app.queues() == []


def test_invalid_options_are_refused_when_a_job_is_added(app: Disque) -> None:
    @app.task
    def work() -> None: ...

    with pytest.raises(TypeError, match="unknown option of a job: color"):
        work.options(color="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="too many"):
        work.bind(1)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="headers must be str"):
        work.options(headers={"tenant": 7}).add()  # type: ignore[dict-item]
    for use in (
        lambda: work.then(work),  # type: ignore[arg-type]
        lambda: app.group([work]),  # type: ignore[list-item]
        lambda: app.group([work.bind()], then=work),  # type: ignore[call-overload]
        lambda: app.schedule("daily", "@daily", work),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match="bind"):
            use()


def test_what_is_no_id_is_refused(app: Disque) -> None:
    @app.task
    def work() -> None: ...

    with app.testing(run=False):
        wrong: Any = work.add()
        for one in (wrong, 5, None):
            with pytest.raises(TypeError, match="the id of a job is a str"):
                app.cancel(one)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"priority": 9}, "priority must be from 0 to 7, not 9"),
        ({"priority": "high"}, "priority must be an integer, not 'high'"),
        ({"ttl": 0}, "ttl must be at least 1, not 0"),
        ({"redeliver_after": 1.5}, "redeliver_after must be an integer, not 1.5"),
        ({"replicate": 0}, "replicate must be from 1 to 65535, not 0"),
        ({"rate": "fast"}, "rate must be a number from 0 to 4294967295 with /s, /m or /h .*'fast'"),
        ({"rate": 5}, "rate must be a number .*, not 5"),
        ({"group_rate": "1/d"}, "group_rate must be a number .*, not '1/d'"),
        ({"active": -1}, "active must be a number from 0 to 4294967295, not -1"),
        ({"burst": True}, "burst must be a number .*, not True"),
        ({"groups": "first"}, "groups must be fair or fifo, not 'first'"),
        ({"dead": "x" * 4097}, "dead must have 4096 bytes at most, not"),
        ({"retries": -1}, "retries must be 0 or more"),
    ],
)
def test_a_task_with_an_option_that_no_node_takes_is_refused_by_its_name(
    app: Disque, options: Any, why: str
) -> None:
    with pytest.raises(ValueError, match=f"^task send: {why}"):
        app.task(name="send", **options)(print)
    assert "send" not in app.core.tasks
    if "rate" in options:
        with pytest.raises(ValueError, match=f"^{why}"):
            app.queue("hooks", **options)


def test_an_option_that_no_node_takes_is_refused_before_the_job_is_added(app: Disque) -> None:
    @app.task
    def work() -> None: ...

    with app.testing() as jobs:
        with pytest.raises(ValueError, match="priority must be from 0 to 7, not 8"):
            work.options(priority=8).add()
        with pytest.raises(TypeError, match=r"a job: prioritty; did you mean priority\?"):
            app.task(prioritty=8)  # type: ignore[call-overload]
    assert jobs.added == []
