"""Programs of each framework go to the node that is best for their queue."""

from collections.abc import Callable
from uuid import uuid4

import dramatiq
from django.test import override_settings

from disque_integrations.django.framework import task_backends
from disque_integrations.dramatiq import DisqueBroker
from packages.integrations.tests.live import test_celery, test_django, test_dramatiq
from packages.integrations.tests.support.django_world import disconnect, tasks, tasks_on
from tests.support.harness import ClusterFactory, LiveNode, wait_until


def apart(nodes: list[LiveNode], queue: str) -> tuple[LiveNode, LiveNode]:
    """The node that is best for a queue, and another one."""
    found: list[LiveNode] = []

    def agree() -> bool:
        ports = {node.ask("QOWNER", queue)[0][2] for node in nodes}  # type: ignore[index]
        found[:] = [node for node in nodes if {b"%d" % node.port} == ports]
        return found != []

    wait_until(agree)
    return found[0], next(node for node in nodes if node is not found[0])


def meets(best: LiveNode, add: Callable[[], object]) -> None:
    """Check that the worker takes jobs at the best node, and that ``add`` comes to add them
    there."""
    wait_until(lambda: int(best.info("clients")["consuming_clients"]) > 0)
    before = best.info("stats")["total_jobs_added"]

    def added() -> bool:
        add()
        return best.info("stats")["total_jobs_added"] != before

    wait_until(added)


def test_programs_and_workers_of_celery_meet_at_the_best_node(cluster: ClusterFactory) -> None:
    best, other = apart(cluster(3), "celery")
    # Without results, which have a queue of their own.
    with test_celery.opened(other, task_ignore_result=True) as app, test_celery.working(app):
        meets(best, lambda: app.tasks["add"].delay(1, 2))


def test_programs_and_workers_of_dramatiq_meet_at_the_best_node(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    name = uuid4().hex
    broker = DisqueBroker(url=test_dramatiq.url(nodes[0]), namespace=name)
    best, other = apart(nodes, broker.name("default"))
    broker.close()
    broker = DisqueBroker(url=test_dramatiq.url(other), namespace=name)

    @dramatiq.actor(broker=broker)
    def add(a: int, b: int) -> int:
        return a + b

    with test_dramatiq.working(broker):
        meets(best, lambda: add.send(1, 2))
    broker.close()


def test_programs_and_workers_of_django_meet_at_the_best_node(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    name = uuid4().hex
    with override_settings(TASKS=tasks_on(test_django.url(nodes[0]), prefix=name)):
        queue = task_backends["default"].settings.queue("default")
    best, other = apart(nodes, queue)
    with override_settings(TASKS=tasks_on(test_django.url(other), prefix=name)):
        backend = task_backends["default"]
        with test_django.working(backend):
            meets(best, lambda: tasks.add.enqueue(1, 2))
    disconnect()
