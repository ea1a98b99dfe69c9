"""Bindings in a cluster after faults: all nodes know them."""

from typing import TYPE_CHECKING

from tests.simulator.events import SECOND
from tests.simulator.plan import BINDINGS

if TYPE_CHECKING:
    from tests.simulator.machine import Machine
    from tests.simulator.world import World

TIME = 10 * SECOND


def check_bindings(world: "World") -> None:
    """Bind a queue, remove the binding of another one, and check what the nodes know."""
    topic, queue = BINDINGS[0]
    first, last = world.usable[0], world.usable[-1]
    world.command(first, [b"BIND", b"sim.#", queue], [b"UNBIND", topic, queue])
    world.loop.run_until(world.loop.now + TIME)
    _judge(world, [*BINDINGS[1:], (b"sim.#", queue)])
    world.command(last, [b"UNBIND", b"sim.#", queue], [b"BIND", topic, queue])
    world.loop.run_until(world.loop.now + TIME)
    _judge(world, [*BINDINGS])


def _judge(world: "World", expected: list[tuple[bytes, bytes]]) -> None:
    for machine in world.usable:
        if _known(machine) != sorted(expected):
            world.oracle.problem(f"node {machine.index} knows the bindings {_known(machine)}")
        if machine.node.topics.waiting:
            world.oracle.problem(f"node {machine.index} still adds jobs to a topic")


def _known(machine: "Machine") -> list[tuple[bytes, bytes]]:
    return sorted((one.topic, one.queue) for one in machine.node.topics.bindings.all())
