"""The result backend: results in a ``Store``."""

import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from celery import states
from celery.backends.base import KeyValueStoreBackend
from celery.exceptions import TimeoutError as CeleryTimeoutError
from celery.result import ResultSet

from disque_integrations.celery.chords import Parts
from disque_integrations.celery.options import Access, TransportOptions, cluster_of
from disque_integrations.celery.store import Store
from disque_integrations.celery.transport import Transport
from disque_trio.client import ConnectionLost

_AT_ONCE: Final = 100
"""The most results to wait for at once."""
_SIZES: Final = ".sizes"
"""Suffix of a chord's key, for the number of its tasks and of its results."""
_LOOK_AGAIN: Final = 30.0
"""Seconds after which to look for results again, even if nothing was heard of them."""


class Backend(KeyValueStoreBackend):
    """Results of Celery's tasks, stored as jobs of a Disque cluster.

    Args:
        url: the URLs of some nodes; without nodes in it, those of the broker.
    """

    supports_autoexpire = True
    supports_native_join = True
    supports_result_compression = True
    implements_incr = True

    def __init__(self, app: Any, url: str | None = None, **kwargs: Any) -> None:
        super().__init__(app, url=url, **kwargs)
        conf = app.conf
        options = TransportOptions.of(conf.get("result_backend_transport_options") or {})
        ssl, name = None, options.client_name
        if not url or not url.partition("://")[2]:
            url, ssl = conf.broker_read_url or conf.broker_url, conf.broker_use_ssl
            name = name or TransportOptions.of(conf.broker_transport_options or {}).client_name
        cluster = cluster_of(
            url.split(";") if isinstance(url, str) else url, ssl, name, options.hints
        )
        self._uri = ";".join(cluster.urls)
        access = Access(cluster, options.retry_for, conf.broker_connection_timeout)
        self._store = Store(access, options, self.expires)
        self._returned: dict[bytes, int] = {}

    def as_uri(self, include_password: bool = False) -> str:
        if include_password:
            return self.url or ""
        return self._uri

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        return isinstance(exc, (ConnectionLost, *Transport.recoverable_channel_errors))

    # ---- keys and values ------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        return self.mget([key])[0]

    def mget(self, keys: Iterable[bytes]) -> list[bytes | None]:
        return [entry.value or None for entry in self._store.find(keys)]

    def set(self, key: bytes, value: str | bytes) -> None:
        self._store.put(key, _bytes(value), lambda _: False)

    def delete(self, key: bytes) -> None:
        self._store.forget([key])

    def _store_result(
        self,
        task_id: str,
        result: Any,
        state: str,
        traceback: Any = None,
        request: Any = None,
        **kwargs: Any,
    ) -> Any:
        meta = self._get_result_meta(
            result=result, state=state, traceback=traceback, request=request
        )
        meta["task_id"] = task_id
        # A success is final: a later result comes from a task that ran twice.
        self._store.put(
            self.get_key_for_task(task_id),
            _bytes(self.encode(meta)),
            lambda stored: bool(self.decode_result(stored)["status"] == states.SUCCESS),
        )
        return result

    # ---- waiting --------------------------------------------------------------------------------

    def wait_for(
        self,
        task_id: str,
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_interval: Any = None,
    ) -> Any:
        """Wait until the task has ended, and return what is known about it. Raises TimeoutError."""
        self._ensure_not_eager()
        meta = next(self.get_many([task_id], timeout, interval, on_interval=on_interval))[1]
        if on_interval and meta["status"] in states.PROPAGATE_STATES:
            on_interval()  # raises the error of a failed parent
        return meta

    def get_many(
        self,
        task_ids: Iterable[str],
        timeout: float | None = None,
        interval: float | None = 0.5,
        no_ack: bool = True,
        on_message: Any = None,
        on_interval: Any = None,
        max_iterations: int | None = None,
        READY_STATES: Any = states.READY_STATES,
    ) -> Iterator[tuple[str, Any]]:
        """Yield the ids of tasks as they end, with what is known about each.

        While other tasks are still running, one that has ended may be reported ``interval`` (s)
        late. Raises TimeoutError.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pending = dict.fromkeys(task_ids)
        bells: dict[str, str] = {}  # of the tasks being waited for
        look_again = 0.0
        first_look = True
        known = {id: self._cache[id] for id in pending if self.is_cached(id)}
        while True:
            for id, meta in known.items():
                if meta["status"] in READY_STATES and id in pending:
                    del pending[id]
                    self._cache[id] = meta
                    if on_message is not None:
                        on_message(meta)
                    yield id, meta
            if not pending:
                return
            if time.monotonic() >= look_again:
                bells.clear()
                look_again = time.monotonic() + _LOOK_AGAIN
            tasks = list(pending)[:_AT_ONCE]
            if new := [id for id in tasks if id not in bells]:
                # Only ask for bells of tasks that have not ended.
                found = self._store.find(
                    [self.get_key_for_task(id) for id in new], bells=not first_look
                )
                if not first_look:
                    bells.update(zip(new, [entry.bell for entry in found], strict=True))
                known = self._decoded(zip(new, [entry.value for entry in found], strict=True))
                ready = any(meta["status"] in READY_STATES for meta in known.values())
                if first_look or ready:
                    first_look = ready
                    continue
            if on_interval:
                on_interval()
            wait = 1.0 if len(tasks) == 1 else interval or 0.5
            if deadline is not None:
                wait = min(wait, deadline - time.monotonic())
                if wait <= 0:
                    raise CeleryTimeoutError("The operation timed out.")
            ended = self._store.wait([bells[id] for id in tasks], wait)
            over = [(id, ended[bells[id]]) for id in tasks if bells[id] in ended]
            for id, _ in over:
                del bells[id]
            known = self._decoded(over)

    def _decoded(self, values: Iterable[tuple[str, bytes | None]]) -> dict[str, Any]:
        return {id: self.decode_result(value) for id, value in values if value}

    # ---- chords ---------------------------------------------------------------------------------

    def _apply_chord_incr(self, header_result_args: Any, body: Any, **kwargs: Any) -> None:
        """Store the size of a chord before its parts are sent."""
        super()._apply_chord_incr(header_result_args, body, **kwargs)
        group, results = header_result_args[:2]
        sizes = b"%d %d" % (_leaves(results), len(results))
        self._store.put(self.get_key_for_chord(group, _SIZES), sizes, lambda _: False)

    def on_chord_part_return(self, request: Any, state: str, result: Any, **kwargs: Any) -> None:
        """Start the body of a chord when its last part has returned."""
        group = request.group
        if not group or not request.chord:
            return
        stored = self.get(self.get_key_for_chord(group, _SIZES))
        if stored is None:
            # The chord is no longer known, so Celery makes its body fail.
            super().on_chord_part_return(request, state, result, **kwargs)
            return
        leaves, results = map(int, stored.split())
        key = self.get_key_for_chord(group)
        parts = Parts(self._store, key, leaves)
        if parts.is_last(request.id, request.group_index):
            self._returned[key] = results
            super().on_chord_part_return(request, state, result, **kwargs)
            parts.forget()

    def incr(self, key: bytes) -> int:
        """Return the number of results of a chord. Celery asks for it when all have arrived."""
        return self._returned.pop(key)


def _leaves(results: Iterable[Any]) -> int:
    """Count the tasks behind these results; the result of a group has several."""
    return sum(_leaves(one.results) if isinstance(one, ResultSet) else 1 for one in results)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
