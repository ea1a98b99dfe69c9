"""Waits of an outbox that signals end."""

import signal

from disque_integrations.outbox.stop import stopped_by_signals


def test_a_signal_ends_a_wait_before_its_handler_has_run() -> None:
    with stopped_by_signals() as stop:
        signal.signal(signal.SIGTERM, lambda *_: None)  # as if its own ran only after the wait
        signal.raise_signal(signal.SIGTERM)
        stop.wait(3600)
        assert not stop.requested
