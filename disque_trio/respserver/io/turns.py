"""Takes the turns of an engine while the other tasks of the process have nothing to do."""

from collections.abc import Set
from typing import Final, Protocol

from disque_trio.respserver.io.engine import Engine

_BUSY: Final = 1  # ms between turns up to which an engine counts as busy


class Others(Protocol):
    """Interface of the other tasks; see ``others.OtherTasks``, which is not compiled."""

    @property
    def runnable(self) -> Set[object]: ...

    def wait(self) -> float: ...


def take_turns(engine: Engine, others: Others) -> None:
    """Take turns, and wait for clients, until other tasks may have something to do or have waited
    long enough. Call it when they have just run."""
    yielded = engine.clients.now
    busy = False  # turns follow each other closely
    while True:
        # A busy engine need not ask how long the others will wait.
        served = engine.poll(engine.linger if busy and not others.runnable else 0.0)
        now = engine.clients.now
        busy = busy and served
        if not engine.others_ready:
            if served and now - yielded < engine.others_wait:
                continue
            wait = others.wait()
            if wait and (served or engine.poll(wait)):
                yielded = engine.clients.now
                busy = yielded - now <= _BUSY
                continue
        engine.others_ready = False
        return
