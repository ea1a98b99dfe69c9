"""Whether and when a failed task is tried again."""

from typing import Any

import pytest
import trio

from disque_trio.tasks import Disque, Reject, Retry, TaskFailed
from disque_trio.tasks.calling import InLoop
from disque_trio.tasks.execution import Execution
from disque_trio.tasks.messages import describe
from disque_trio.tasks.retrying import pause
from tests.support.fake_job import FakeJob


@pytest.fixture
def app() -> Disque:
    return Disque("disque://nowhere.invalid")


def test_delays_stay_within_their_limits() -> None:
    assert all(0.75 <= pause((1, 600), 0) <= 1.25 for _ in range(100))
    assert all(450 <= pause((1, 600), 1000) <= 600 for _ in range(100))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ExceptionGroup("two", [ExceptionGroup("one", [OSError("x")])]), "OSError: x"),
        (
            ExceptionGroup("two", [OSError("x"), KeyError("y")]),
            "ExceptionGroup: two (2 sub-exceptions): OSError: x; KeyError: 'y'",
        ),
        (
            ExceptionGroup("five", [OSError("x")] * 5),
            "ExceptionGroup: five (5 sub-exceptions): OSError: x; OSError: x; OSError: x"
            " and 2 more",
        ),
    ],
)
def test_a_group_of_exceptions_is_named_by_what_is_in_it(error: Exception, text: str) -> None:
    assert describe(error) == text


async def test_a_failed_run_says_which_attempt_it_was_and_when_the_next_one_comes(
    app: Disque,
) -> None:
    @app.task(name="work", retries=2, backoff=(4, 4))
    def work() -> None:
        raise OSError("x")

    execution = Execution(app.core, InLoop())
    again = (await execution.run(FakeJob("work", nacks=1))).failed
    assert again is not None
    assert (again.attempt, again.most, again.is_expected) == (2, 3, False)
    assert again.next_in == pytest.approx(4, rel=0.26)
    last = (await execution.run(FakeJob("work", nacks=2))).failed
    assert last is not None
    assert (last.attempt, last.most, last.next_in) == (3, 3, None)


class Busy(ConnectionError):
    """A subclass of what is named."""


@pytest.mark.parametrize(
    ("options", "error", "kind"),
    [
        ({"retry_for": (ConnectionError,)}, Busy(), "retried"),
        ({"retry_for": (ConnectionError,)}, ValueError(), "dead"),
        ({"retry_for": ()}, ValueError(), "dead"),
        ({"retry_for": (ConnectionError,)}, Retry(delay=3), "retried"),
        ({"never_for": (ValueError,)}, UnicodeError("x"), "dead"),
        ({"never_for": (ValueError,)}, KeyError(), "retried"),
        ({"never_for": (Exception,)}, Retry(), "retried"),
        ({"retry_for": (OSError,), "never_for": (Busy,)}, Busy(), "dead"),
        ({"retry_for": (OSError,), "never_for": (Busy,)}, OSError(), "retried"),
        ({"retry_for": (OSError,)}, Reject(), "dead"),
        ({"retry_for": (OSError,)}, SystemExit(1), "dead"),
        ({"retry_for": (OSError,)}, ExceptionGroup("", [OSError(), Busy()]), "retried"),
        ({"retry_for": (OSError,)}, ExceptionGroup("", [OSError(), KeyError()]), "dead"),
        ({"never_for": (KeyError,)}, ExceptionGroup("", [OSError(), KeyError()]), "dead"),
    ],
)
async def test_exceptions_decide_whether_a_task_is_tried_again(
    app: Disque, options: dict[str, Any], error: BaseException, kind: str
) -> None:
    @app.task(name="fail", **options)
    async def fail() -> None:
        raise error

    assert (await Execution(app.core, InLoop()).run(FakeJob("fail"))).kind == kind


@pytest.mark.parametrize("types", [(TimeoutError,), (OSError,)])
async def test_the_timeout_of_a_task_is_a_timeout_error(app: Disque, types: Any) -> None:
    @app.task(name="never", timeout=0.001, never_for=types)
    async def never() -> None:
        await trio.sleep_forever()

    @app.task(name="retry", timeout=0.001, retry_for=types)
    async def retry() -> None:
        await trio.sleep_forever()

    execution = Execution(app.core, InLoop())
    outcome = await execution.run(FakeJob("never"))
    assert (outcome.kind, outcome.error) == ("dead", "TimeoutError: after 0.001 s")
    assert (await execution.run(FakeJob("retry"))).kind == "retried"


def test_a_function_says_how_long_to_wait(app: Disque) -> None:
    seen: list[tuple[int, str]] = []

    def wait(attempt: int, error: BaseException) -> float:
        seen.append((attempt, str(error)))
        return 10.0 * attempt

    @app.task(retries=3, backoff=wait)
    def fail() -> None:
        raise ValueError("no")

    with app.testing() as jobs:
        fail.add()
    [job] = jobs.added
    assert (job.delays, job.attempts, job.state) == ([10, 20, 30], 4, "dead")
    assert seen == [(1, "no"), (2, "no"), (3, "no")]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [(lambda *_: -1, "backoff returned -1.0"), (lambda: 1, "backoff raised TypeError")],
)
async def test_a_wrong_function_for_the_pause_is_told_and_the_default_applies(
    app: Disque, wrong: Any, why: str
) -> None:
    @app.task(name="fail", backoff=wrong)
    async def fail() -> None:
        raise ValueError("no")

    job = FakeJob("fail")
    outcome = await Execution(app.core, InLoop()).run(job)
    assert outcome.kind == "retried"
    assert 0.75 <= job.settled[1] <= 1.25
    assert outcome.error.startswith(f"ValueError: no ({why}")


def test_one_call_may_have_options_of_its_own(app: Disque) -> None:
    @app.task(retries=5)
    def fail(*before: object) -> None:
        raise ValueError

    @app.task
    def ok(*before: object) -> None: ...

    other = fail.options(retries=2, backoff=(3, 3), timeout=5)
    with app.testing() as jobs:
        other.add()
        ok.then(other.bind()).add()
        app.group([other.bind()], ok.bind())
        fail.options(retries=2).options(retries=None).add()
    failed = jobs.of("fail")
    assert [job.attempts for job in failed] == [3, 3, 3, 6]
    assert all(2 <= delay <= 3 for delay in failed[0].delays)
    assert failed[0].headers["task-timeout"] == "5"


async def test_a_call_has_its_own_timeout(app: Disque) -> None:
    @app.task(name="sleep", timeout=60)
    async def sleep() -> None:
        await trio.sleep_forever()

    job = FakeJob("sleep", headers={"task-timeout": "0.001", "task-retries": "0"})
    outcome = await Execution(app.core, InLoop()).run(job)
    assert (outcome.kind, outcome.error) == ("dead", "TimeoutError: after 0.001 s")


@pytest.mark.parametrize(
    "headers", [{"task-retries": "-1"}, {"task-timeout": "soon"}, {"task-backoff": "3 2"}]
)
async def test_a_job_with_wrong_options_becomes_a_dead_letter(
    app: Disque, headers: dict[str, str]
) -> None:
    @app.task(name="work")
    def work() -> None: ...

    outcome = await Execution(app.core, InLoop()).run(FakeJob("work", headers=headers))
    assert outcome.kind == "dead"
    assert outcome.error.startswith("bad option of the job")


def test_wrong_options_are_refused(app: Disque) -> None:
    @app.task
    def work() -> None: ...

    with app.testing(run=False) as jobs:
        for options in ({"retries": -1}, {"timeout": 0}, {"backoff": (3, 1)}):
            with pytest.raises(ValueError, match="wrong option"):
                work.options(**options).add()  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="function"):
            work.options(backoff=lambda *_: 1).add()  # type: ignore[typeddict-item]
        with pytest.raises(ValueError, match="reserved"):
            work.options(headers={"task-retries": "1"}).add()
    assert jobs.added == []
    for wrong in ({"retry_for": TimeoutError}, {"never_for": ("ValueError",)}):
        with pytest.raises(TypeError, match="exception classes"):
            app.task(**wrong)(test_wrong_options_are_refused)  # type: ignore[arg-type]


def test_a_failed_task_says_its_error_whichever_rule_ended_it(app: Disque) -> None:
    @app.task(never_for=(ValueError,))
    def fail() -> None:
        raise ValueError("no such address")

    with app.testing(), pytest.raises(TaskFailed, match="no such address"):
        fail.add().get()


def test_former_words_go_on_and_name_the_new_ones(app: Disque) -> None:
    with pytest.warns(DeprecationWarning, match="retry is now called redeliver_after") as seen:

        @app.task(retry=7)
        def work() -> None: ...

    assert seen[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="redeliver_after") as seen:
        other = work.options(retry=8)
    assert seen[0].filename == __file__
    with app.testing(run=False) as jobs:
        work.add()
        other.add()
        work.options(redeliver_after=9).add()
    assert [job.options["retry"] for job in jobs.added] == [7, 8, 9]
    with pytest.warns(DeprecationWarning, match="retry_for is now called node_timeout") as seen:
        Disque("disque://a", retry_for=3)
    assert seen[0].filename == __file__
