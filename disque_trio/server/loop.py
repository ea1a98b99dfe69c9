"""The task that lets the engine take its turns.

Turns never wait; waiting is done here, where Trio sees it.
"""

import trio

from disque_trio.server.engine import Engine


async def serve(engine: Engine) -> None:
    """Take turns until cancelled."""
    yielded = 0
    linger = 0.0
    while True:
        if engine.poll(linger):
            linger = engine.linger
            if engine.now - yielded >= engine.others_wait:
                await trio.lowlevel.checkpoint()
                yielded = engine.now
        else:
            linger = 0.0
            await trio.lowlevel.wait_readable(engine.fileno())


async def flush_all(engine: Engine, seconds: float) -> None:
    """Send what is unsent, for at most ``seconds``."""
    with trio.move_on_after(seconds):
        while True:
            if not engine.send_unsent():
                return
            await trio.sleep(0.01)
