"""What the processes of a server do one after the other because a client has asked one of them:
RESTART at the common port, and SHUTDOWN REWRITE-AOF.

Whoever was asked comes last. So the client hears whether it has failed: a process that cannot do it
says why, and the rest goes on as before.
"""

from collections.abc import Awaitable, Callable

from disque_trio.node.sibling_table import APPLY, DUMP, RESTART
from disque_trio.node.siblings import Siblings
from disque_trio.resp.reply import error
from disque_trio.respserver.client import Client, Pending
from disque_trio.respserver.io.engine import Engine


class Together:
    """Does it for one process.

    Args:
        restart: replaces this process, or returns why not.
        restart_problem: returns why a new process could not take over, as far as is known before.
        dump: writes the jobs to a new file, or returns why not.
        shutdown: ends this process after that, and so all.
    """

    def __init__(
        self,
        siblings: Siblings,
        engine: Engine,
        restart: Callable[[], str | None],
        restart_problem: Callable[[], str | None],
        dump: Callable[[], str | None],
        shutdown: Callable[[], str | None],
    ) -> None:
        self._siblings = siblings
        self._engine = engine
        self._restart = restart
        self._restart_problem = restart_problem
        self._dump = dump
        self._shutdown = shutdown
        self._busy = False

    def begin_restart(self, client: Client) -> None:
        """Restart all processes; ``client`` gets an error if that fails."""
        self._begin(client, self._restart_all)

    def begin_shutdown(self, client: Client) -> None:
        """Write the jobs of all processes, then end all; likewise."""
        self._begin(client, self._dump_all)

    def _begin(self, client: Client, all: Callable[[], Awaitable[str | None]]) -> None:
        entry = Pending(client, None)
        client.line_up(entry)
        self._siblings.spawn(self._run, entry, all)

    async def _run(self, entry: Pending, all: Callable[[], Awaitable[str | None]]) -> None:
        if self._busy:
            problem: str | None = "ERR a RESTART or SHUTDOWN of all processes is under way"
        else:
            self._busy = True
            problem = await all()
            self._busy = False
        if problem is not None and not self._engine.halted:
            entry.reply = error(problem)
            self._engine.node.answered.append(entry)
            self._engine.after_node()

    async def _restart_all(self) -> str | None:
        problem = self._restart_problem()
        if problem is not None:
            return problem
        for number in self._siblings.others():
            problem = await self._siblings.ask(number, RESTART)
            if problem is None:
                continue  # it is not there: whatever starts it, starts the new program
            if problem == "" and not await self._siblings.comes_back(number):
                problem = "it has not come back"
            if problem:
                return f"ERR RESTART stopped at process {number}: {problem.removeprefix('ERR ')}"
        return self._restart()

    async def _dump_all(self) -> str | None:
        problem = self._dump()
        if problem is not None:
            return problem
        for number in self._siblings.others():
            problem = await self._siblings.ask(number, DUMP)
            if problem:
                for other in self._siblings.others():
                    await self._siblings.ask(other, APPLY)
                return f"ERR SHUTDOWN stopped at process {number}: {problem.removeprefix('ERR ')}"
        return self._shutdown()
