"""The groups that tasks give to their jobs, and the policies that tasks want for their queues."""

from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from disque_trio.client import AddManyError, DisqueError, Policy
from disque_trio.tasks import Disque
from disque_trio.tasks.policies import QueuePolicy


@pytest.fixture
def app() -> Disque:
    return Disque("disque://nowhere.invalid")


class Policies:
    """A client that has policies."""

    def __init__(self, *policies: Policy) -> None:
        self.policies = {policy.name: policy for policy in policies}
        self.said: list[tuple[str, dict[str, Any]]] = []

    async def policy(self, queue: str) -> Policy | None:
        return self.policies.get(queue) or self.policies.get("*")

    async def set_policy(self, queue: str, **options: Any) -> None:
        self.said.append((queue, {name: value for name, value in options.items() if value}))


def applied(app: Disque, client: Policies) -> list[tuple[str, dict[str, Any]]]:
    """Return what ``setup`` sets with ``client``."""

    async def apply() -> None:
        await app._set_up(client)  # type: ignore[arg-type]

    trio.run(apply)
    return client.said


# ---- groups -----------------------------------------------------------------------------------


def test_a_function_makes_the_group_from_the_arguments(app: Disque) -> None:
    @app.task(queue="hooks", group_by=lambda order, *, to="x": order["customer"])
    def hook(order: dict[str, Any], *, to: str = "x") -> None: ...

    with app.testing(run=False) as jobs:
        hook.add({"customer": "acme"})
        hook.add({"customer": 7}, to="y")
        hook.add({"customer": None})
        hook.options(group="mine").add({"customer": "acme"})
        hook.bind({"customer": "bell"}).add()
        with pytest.raises(ValueError, match="group must be from 1 to 1024 bytes"):
            hook.add({"customer": ""})
        with pytest.raises(TypeError):
            hook.add()
    assert [one.options.get("group") for one in jobs.added] == [
        *("acme", "7", None, "mine", "bell")
    ]


def test_many_jobs_have_a_group_each_and_their_ids_come_in_order(app: Disque) -> None:
    @app.task(group_by=lambda n: n % 3, unique=True)
    def work(n: int) -> int:
        return n

    with app.testing() as jobs:
        assert work.map(range(7)).get() == list(range(7))
    assert sorted((job.args[0], job.options["group"]) for job in jobs.added) == [
        (n, str(n % 3)) for n in range(7)
    ]


def test_of_many_jobs_in_groups_one_knows_which_were_not_added(app: Disque) -> None:
    class Refusing:
        async def add_many(self, queue: str, bodies: list[bytes], **options: Any) -> list[str]:
            if options["group"] == "1":
                raise AddManyError([DisqueError("no") for _ in bodies])
            return [f"id {body!r}" for body in bodies]

    @app.task(group_by=lambda n: n % 2)
    def work(n: int) -> None: ...

    made = [work._whole({}, (n,), {}) for n in range(5)]
    with pytest.raises(AddManyError) as caught:
        trio.run(work._many(made), Refusing())
    assert [isinstance(one, str) for one in caught.value.results] == [True, False] * 2 + [True]


def test_steps_of_chains_and_groups_have_the_groups_of_all_their_arguments(app: Disque) -> None:
    @app.task
    def find(n: int) -> str:
        return f"customer {n}"

    @app.task(group_by=lambda name, *more: name)
    def charge(name: str, *more: str) -> str:
        return name

    @app.task(group_by=lambda names: len(names))
    def end(names: list[str]) -> None: ...

    with app.testing() as jobs:
        find.then(charge.bind()).add(1)
        find.then(charge.bind("looks complete")).add(2)
        find.then(charge.options(group="mine").bind()).add(3)
        app.group([find.bind(4), find.bind(5)], then=end.bind()).get()
    groups = [job.options.get("group") for job in jobs.added if "find" not in job.task]
    assert [group for group in groups if group] == ["customer 1", "customer 2", "mine", "2"]


def test_a_group_and_a_function_for_it_are_refused(app: Disque) -> None:
    with pytest.raises(ValueError, match="either a group or group_by"):
        app.task(group="a", group_by=str)(print)


# ---- jobs that nothing comes before ------------------------------------------------------------


def test_bound_tasks_are_unique_and_grouped_unless_something_comes_before_them(
    app: Disque,
) -> None:
    @app.task(unique=lambda name, *more: name, group_by=lambda name, *more: name)
    def work(name: str, *more: str) -> str:
        return name

    with app.testing(run=False) as jobs:
        first = work.add("a")
        assert work.bind("a", "again").add().id == first.id
        assert work.bind("a").then(work.bind()).add().id == first.id
        assert work.options(unique=False).bind("a").add().id != first.id
        assert work.options(unique="mine").bind("a").add().id != first.id
        app.group([work.bind("a"), work.bind("b")])
    assert [job.options["group"] for job in jobs.added] == ["a", "a", "a", "b"]


def test_arguments_that_nothing_can_add_are_missed_at_once(app: Disque) -> None:
    @app.task
    def work(name: str) -> str:
        return name

    with app.testing(run=False) as jobs:
        for add in (
            work.bind().add,
            lambda: app.group([work.bind()]),
            lambda: app.group([work.bind()], then=work.bind()),
            lambda: app.schedule("daily", "@daily", work.bind()),
        ):
            with pytest.raises(TypeError, match="missing a required argument: 'name'"):
                add()
        app.group([work.bind("a")], then=work.bind())
    assert [job.task for job in jobs.added] == ["disque.group"]


# ---- policies ---------------------------------------------------------------------------------


def test_what_tasks_say_of_their_queue_is_set(app: Disque) -> None:
    app.task(queue="hooks", name="a", group_by=str, group_active=2, group_rate="5/s")(print)
    app.task(queue="hooks", name="b", active=20, rate="300/m", burst=10)(print)
    app.task(queue="plain", name="c")(print)
    assert applied(app, Policies()) == [
        (
            "hooks",
            {
                "groups": "fair",
                "group_active": 2,
                "group_rate": "5/s",
                "active": 20,
                "rate": "300/m",
                "burst": 10,
                "dead": "hooks.dead",
            },
        ),
        ("plain", {"dead": "plain.dead"}),
    ]


def test_a_queue_or_a_pattern_can_be_declared(app: Disque) -> None:
    name = app.queue("hooks.*", group_rate="60/m", replicate=2)
    assert app.queue("mail", groups="fifo", dead="lost") == "mail"
    assert (name, app.queues()) == ("hooks.*", [])
    app.task(queue="mail", name="a", active=3)(print)
    assert app.queues() == ["mail"]
    assert applied(app, Policies()) == [
        ("hooks.*", {"groups": "fair", "group_rate": "60/m", "replicate": 2}),
        ("mail", {"groups": "fifo", "dead": "lost", "active": 3}),
    ]


def test_only_what_differs_is_set_and_it_is_said(app: Disque) -> None:
    app.queue("same", active=5, rate="60/m", group_active=1)
    app.queue("other", active=5)
    same = Policy(
        "same", active=5, rate="60/m", groups="fifo", group_active=1, dead="same.dead", ttl=9
    )
    other = Policy("other", active=7, rate="1/s", dead="x")
    with capture_logs() as said:
        assert applied(app, Policies(same, other)) == [("other", {"active": 5})]
    assert [(line["queue"], line["active"]) for line in said] == [("other", 5)]


def test_the_policy_of_a_pattern_is_copied(app: Disque) -> None:
    app.queue("mail", active=5)
    pattern = Policy("*", ttl=60, groups="fifo", dead="all.dead")
    assert applied(app, Policies(pattern)) == [
        ("mail", {"ttl": 60, "groups": "fifo", "dead": "all.dead", "active": 5})
    ]


def test_contradictions_and_unknown_options_are_refused(app: Disque) -> None:
    app.queue("mail", active=5)
    with pytest.raises(ValueError, match=r"'mail' has different values of active .* 5 and 6"):
        app.task(queue="mail", active=6)(print)
    with pytest.raises(TypeError, match="did you mean active"):
        app.queue("mail", active_=5)  # type: ignore[call-arg]
    assert QueuePolicy().wanted() == {}
