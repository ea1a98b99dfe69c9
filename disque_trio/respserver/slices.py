"""The next slice of a command about many ids."""

from disque_trio.resp.reply import error
from disque_trio.respserver.command import INTERNAL_ERROR, CommandError, misconf
from disque_trio.respserver.machine import Machine


def do_slice(machine: Machine, now: int) -> None:
    """Do one slice of the first batch in ``machine.batches``; there has to be one. ``now``: ms
    since the epoch."""
    batches = machine.batches
    batch = batches.waiting.popleft()
    command = batch.command
    noted = len(machine.journal)
    before = batch.left
    started = machine.clock()
    machine.now = now
    machine.client = batch.client
    try:
        if machine.write_problem:
            # What was done may be missing from the file, and the rest would be.
            batch.reply = misconf(machine.write_problem)
        else:
            batch.step(batches.size)
    except CommandError as failure:
        batch.reply = error(str(failure))
    except Exception:
        batch.reply = INTERNAL_ERROR
        raise
    finally:
        machine.client = None
        batch.journaled = machine.journaling and len(machine.journal) != noted
        batches.put_back(batch, before)
        if batch.reply is not None:
            machine.answered.append(batch)
    if machine.memory.used > machine.memory.evict_above:
        machine.make_room(command)
    machine.after_command()
    command.nanoseconds += machine.clock() - started
