"""The next slice of a command that runs in slices."""

from disque_trio.resp.reply import error
from disque_trio.respserver.batches import Sliced
from disque_trio.respserver.client import REPLY_ON
from disque_trio.respserver.command import INTERNAL_ERROR, CommandError
from disque_trio.respserver.groups import ExecRun
from disque_trio.respserver.machine import Machine


def do_slice(machine: Machine, now: int) -> None:
    """Do one slice of the first batch in ``machine.batches``; there has to be one. ``now``: ms
    since the epoch."""
    batches = machine.batches
    first = batches.waiting[0]
    if isinstance(first, ExecRun):
        _go_on(machine, first, now)
        return
    batch = batches.waiting.popleft()
    command = batch.command
    noted = len(machine.journal)
    before = batch.left
    started = machine.clock()
    machine.now = now
    machine.client = batch.client
    try:
        problem = machine.add_problem if command.adds else machine.write_problem
        if not command.writes and batch.client.close:
            batch.reply = b""  # nobody will read the rest
        elif problem and command.writes:
            # What was done may be missing from the file, and the rest would be.
            batch.refuse(machine.misconf)
        else:
            batch.rests = False
            batch.step(batches.size)
        _hand_out(machine, batch)
    except CommandError as failure:
        batch.reply = error(str(failure))
    except Exception:
        batch.reply = INTERNAL_ERROR
        batch.client.close = True  # nobody knows where the reply, if it has begun, ends
        raise
    finally:
        machine.client = None
        batch.journaled = (
            machine.journaling
            and len(machine.journal) != noted
            and not (machine.lagging or (command.stands and machine.may_lag))
        )
        batches.put_back(batch, before)
        if batch.reply is not None:
            machine.answered.append(batch)
    if machine.memory.used > machine.memory.evict_above:
        machine.make_room(command)
    machine.after_command()
    command.nanoseconds += machine.clock() - started


def _go_on(machine: Machine, run: ExecRun, now: int) -> None:
    """Do a slice of the group ``run``. Until ``batches.exclusive`` is reset, call nothing but this
    and ``command``, for requests that are ``is_independent``."""
    batches = machine.batches
    client = run.client
    mode = client.reply_mode
    machine.now = now
    machine.in_group = batches.exclusive = True
    batches.inside = []
    client.reply_mode = REPLY_ON  # CLIENT REPLY is about EXEC as a whole
    if run.current is not None:
        machine.client = client
    try:
        run.step(batches.size)
    except Exception:
        run.give_up()
        raise
    finally:
        machine.client = None
        machine.in_group = False
        batches.inside = None
        client.reply_mode = mode
        if run.reply is not None:
            batches.exclusive = False
            batches.end(run)
            machine.answered.append(run)
            machine.after_command()


def _hand_out(machine: Machine, batch: Sliced) -> None:
    """Send what is ready of the reply, if it is complete, or nothing has to be sent before it."""
    ready = batch.ready
    if not ready or (batch.command.writes and batch.reply is None):
        return
    client = batch.client
    if batch.reply is not None or client.reply_queue[0] is not batch:
        return  # ``commit`` sends it
    if not batch.silent:
        client.out.append(b"".join(ready))
        machine.woken.append(client)
    ready.clear()
