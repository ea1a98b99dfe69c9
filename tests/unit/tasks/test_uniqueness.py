"""Unique tasks: until start, replace, debounce and throttle."""

from collections.abc import Callable
from typing import Any

import pytest

from disque_trio.tasks import Disque, current_job


@pytest.fixture
def app() -> Disque:
    return Disque("disque://nowhere.invalid", name="shop")


def options_of(app: Disque, add: Callable[[], object]) -> dict[str, Any]:
    """The options of ``Client.add`` with which ``add`` adds its only job."""
    with app.testing(run=False) as jobs:
        add()
    [job] = jobs.added
    return job.options


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"unique_until": "start"}, "needs unique"),
        ({"replace": True}, "needs unique"),
        ({"unique": False, "debounce": 5}, "debounce needs unique"),
        ({"unique": False, "throttle": 5}, "throttle needs unique"),
        ({"unique": True, "unique_until": "noon"}, "start or end"),
        ({"unique": True, "replace": True, "unique_until": "end"}, "replace cannot"),
        ({"unique": True, "replace": True, "unique_for": 5}, "unique_for cannot"),
        ({"unique": True, "unique_until": "start", "unique_for": 5}, "unique_for cannot"),
        ({"debounce": 5, "throttle": 5}, "debounce cannot be combined with throttle"),
        ({"debounce": 5, "unique_for": 5}, "debounce cannot be combined with unique_for"),
        ({"debounce": 5, "unique_until": "end"}, "replace cannot"),
        ({"debounce": 5, "delay": 5}, "debounce cannot be combined with delay"),
        ({"throttle": 5, "replace": True}, "throttle cannot be combined with replace"),
        ({"throttle": 5, "unique_until": "start"}, "throttle cannot be combined with unique_until"),
        ({"debounce": 0}, "above 0"),
        ({"throttle": -1}, "above 0"),
        ({"debounce": "5s"}, "number of seconds"),
    ],
)
def test_what_makes_no_sense_is_an_error_at_once(
    app: Disque, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        app.task(**options)(print)

    @app.task
    def plain() -> None: ...

    if "debounce cannot be combined with delay" not in problem and "False" not in str(options):
        with pytest.raises(ValueError, match=problem):
            plain.options(**options).bind()


def test_until_start_another_job_can_be_added_while_one_runs(app: Disque) -> None:
    ids: list[str] = []
    runs: list[str] = []

    @app.task(unique=True, unique_until="start")
    def rebuild(index: str) -> None:
        runs.append(index)
        if len(runs) == 1:
            ids.append(rebuild.add(index).id)

    with app.testing() as jobs:
        assert ids != [rebuild.add("a").id]
    assert runs == ["a", "a"]
    assert len(jobs.added) == 2

    @app.task(unique=True)
    def other(index: str) -> None:
        ids.append(other.add(index).id)

    with app.testing() as jobs:
        first = other.add("a").id
    assert ids[-1] == first


@pytest.mark.parametrize("options", [{"replace": True}, {"debounce": 5}])
def test_the_last_one_replaces_what_waits(app: Disque, options: dict[str, Any]) -> None:
    @app.task(**{"unique": lambda page, *_: page, **options})
    def index(page: str, version: int = 0) -> None: ...

    with app.testing(run=False) as jobs:
        first = index.add("a", 1)
        other = index.add("b", 1)
        again = index.add("a", 2)
    assert first.id == again.id != other.id
    assert [job.args for job in jobs.added] == [["b", 1], ["a", 2]]


def test_debounce_is_a_delay_that_starts_again(app: Disque) -> None:
    @app.task(debounce=5)
    def index(page: str) -> None: ...

    assert options_of(app, lambda: index.add("a"))["delay"] == 5
    assert options_of(app, lambda: index.bind("a").add())["delay"] == 5
    assert options_of(app, lambda: list(index.map(["a"])))["delay"] == 5
    assert options_of(app, lambda: index.add_in(9, "a"))["delay"] == 9
    assert options_of(app, lambda: index.options(debounce=7).add("a"))["delay"] == 7
    at = options_of(app, lambda: index.at(2_000_000_000, "a"))
    assert "delay" not in at
    assert "delay" not in options_of(app, lambda: index.options(unique=False).add("a"))


def test_throttle_keeps_the_key(app: Disque) -> None:
    @app.task(throttle=60)
    def report(day: str) -> None: ...

    with app.testing() as jobs:
        ids = {report.add("mon").id, report.add("mon").id, report.bind("mon").add().id}
    assert len(ids) == 1
    assert len(jobs.added) == 1
    assert jobs.added[0].state == "acked"


def test_what_runs_and_keeps_its_key_is_not_replaced_in_silence(app: Disque) -> None:
    @app.task(unique=True)
    def index(page: str) -> None:
        if current_job().attempt == 1:
            index.options(replace=True).add(page)

    with app.testing() as jobs:
        index.add("a")
    assert jobs.added[0].error.startswith("ReplyError: DELIVERED") or jobs.added[0].attempts == 2


def test_what_follows_and_what_is_scheduled_has_no_key_and_no_delay(app: Disque) -> None:
    @app.task(debounce=5, cron="@daily")
    def index(page: str = "") -> str:
        return page

    with app.testing() as jobs:
        index.then(index.bind()).add("a")
    assert [job.options.get("delay") for job in jobs.added] == [5, None]
    [table] = app._schedules.tables.values()
    assert "DELAY" not in table.words()
    assert "REPLACE" not in table.words()
    assert "UNIQUE" not in table.words()
