"""The rights of programs: the roles in docs/users.md suffice; with less, errors are clear."""

import re
from collections.abc import Callable, Iterator

import pytest

from disque_trio.client import NoPermError
from disque_trio.client.sync import Client, connect
from disque_trio.tasks import Disque
from tests.support import ROOT
from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory, Wire, wait_until
from tests.support.task_worker import working_thread
from tests.support.worker_rig import worker_rig

ROLES = dict(
    re.findall(
        r"^    ACL SETUSER (\w+) on >\S+ (.*)$", (ROOT / "docs" / "users.md").read_text(), re.M
    )
)


class House:
    """A node where users that do not log in have one of the roles; and its operator."""

    def __init__(self, node: LiveNode) -> None:
        self.node = node
        self.operator: Wire = node.wire()
        rules = ROLES["operator"].split()
        assert self.operator("ACL", "SETUSER", "operator", "on", ">secret", *rules) == b"OK"
        assert self.operator("AUTH", "operator", "secret") == b"OK"

    def everybody_is(self, role: str, *more: str) -> None:
        """Give new connections the rules of ``role``, and ``more``."""
        rules = [*ROLES[role].split(), *more]
        assert self.operator("ACL", "SETUSER", "default", "reset", "on", "nopass", *rules) == b"OK"

    def client(self, role: str, *more: str) -> Client:
        self.everybody_is(role, *more)
        return connect(f"{self.node.host}:{self.node.port}")

    def refused(self) -> list[object]:
        """Return what was refused, according to ACL LOG."""
        entries = self.operator("ACL", "LOG")
        assert isinstance(entries, list)
        return [dict(zip(entry[::2], entry[1::2], strict=True))[b"object"] for entry in entries]


@pytest.fixture
def house(disque_server: NodeFactory) -> Iterator[House]:
    house = House(disque_server())
    yield house
    house.operator.close()


def test_a_shop_adds_and_waits_for_results(house: House) -> None:
    with house.client("shop") as client:
        id = client.add("mail.in", "body", unique="key")
        assert client.add("mail.in", "body", unique="key") == id
        client.add_many("mail.in", ["1", "2"])
        assert client.qlen("mail.in") == 3
        assert house.operator("ACKJOB", id, "RESULT", "done") == 1
        (outcome,) = client.wait(id, timeout=HANG_SECONDS)
        assert outcome.result == b"done"
        assert house.refused() == []
        for refused in (
            lambda: client.add("admin", "body"),
            lambda: client.get("mail.in", nohang=True),
            lambda: client.ack(id),
        ):
            with pytest.raises(NoPermError):
                refused()


def test_a_mailer_does_everything_that_a_worker_does(house: House) -> None:
    ids = [house.operator("ADDJOB", "mail.in", str(n), 0, "RETRY", 60) for n in range(5)]
    with house.client("mailer") as client:
        (job,) = client.get("mail.in", nohang=True)
        assert client.working(job.id) == 60
        client.nack(job.id)
        seen = []
        for held in client.jobs("mail.in"):
            seen.append(held.body)
            if len(seen) == 2:
                held.requeue()
            elif len(seen) == 3:
                held.nack(delay=0.01)
            elif len(seen) == 7:
                held.ack(result="done")
                break
        assert len(seen) == 7
        assert house.refused() == []
        assert not any(house.operator("SHOW", id) for id in ids if isinstance(id, bytes))


def test_a_mailer_that_asks_for_other_jobs_gets_an_error_at_once(house: House) -> None:
    id = house.operator("ADDJOB", "admin", "body", 0)
    assert isinstance(id, bytes)
    known = id.decode()
    asks: list[Callable[[Client], object]] = [
        lambda client: client.get("admin"),
        lambda client: client.get("*", pattern=True),
        lambda client: next(iter(client.jobs("mail.in", "admin"))),
        lambda client: client.ack(known),
        lambda client: client.show(known),
    ]
    with house.client("mailer", "+show") as client:
        for ask in asks:
            with pytest.raises(NoPermError):
                ask(client)
    assert house.operator("SHOW", id)


def test_a_loop_that_loses_its_rights_raises(house: House) -> None:
    with house.client("mailer") as client:
        loop = iter(client.jobs("mail.in"))
        house.operator("ADDJOB", "mail.in", "body", 0)
        assert next(loop).body == b"body"
        house.everybody_is("shop")
        with pytest.raises(NoPermError):
            next(loop)


# ---- tasks --------------------------------------------------------------------------------------


def test_tasks_are_added_and_run_with_the_roles(house: House) -> None:
    house.operator("QSET", "mail.*", "DEAD", "mail.dead")
    shop, mailer = ROLES["shop"], ROLES["mailer"]
    assert "resetkeys" in shop
    assert "resetkeys" in mailer
    url = f"disque://{house.node.host}:{house.node.port}"
    house.everybody_is("mailer", "%W~mail.*", "+addjob", "+waitjob")
    with Disque(url) as app:

        def double(n: int) -> int:
            if n < 0:
                raise ValueError("negative")
            return 2 * n

        task = app.task(queue="mail.in", name="double", redeliver_after=2, retries=0)(double)
        with working_thread(app):
            assert task.add(4).get(timeout=HANG_SECONDS) == 8
            task.add(-1)
            wait_until(lambda: house.operator("QLEN", "mail.dead") == 1)
            group = app.group([task.bind(n) for n in range(3)])
            assert group.get(timeout=HANG_SECONDS) == [0, 2, 4]
    assert house.refused() == []


def test_a_worker_process_that_may_not_take_jobs_ends_with_one_line(house: House) -> None:
    house.operator("QSET", "*", "DEAD", "dead")
    house.everybody_is("mailer")
    with worker_rig(house.node.directory, house.node.port) as rig:
        worker = rig.start("--processes", "2")  # of the queues mail and sms
        assert worker.ends() == 1
        assert "NOPERM" in worker.last_line()
