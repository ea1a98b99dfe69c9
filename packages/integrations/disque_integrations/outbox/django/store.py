"""The outbox in the database of a Django project."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from django.db import DatabaseError, InterfaceError, connections, transaction
from django.db.models import Count, F, Min, Q

from disque_integrations.outbox.django.models import OutboxJob
from disque_integrations.outbox.listening import Notifications
from disque_integrations.outbox.rows import TABLE, Row, row_of
from disque_integrations.outbox.store import Refusal, Waiting


class DjangoStore:
    """The table in the database ``alias``; see ``Store``."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._jobs = OutboxJob.objects.using(alias)
        self._locks = connections[alias].features.has_select_for_update_skip_locked
        self.errors: tuple[type[Exception], ...] = (DatabaseError, InterfaceError)
        if self._has_psycopg_3():
            import psycopg

            self.errors += (psycopg.Error,)

    @contextmanager
    def batch(self, limit: int, now: float) -> Iterator["DjangoBatch"]:
        due = self._jobs.filter(sent=None, again__lte=now).order_by("id")
        if self._locks:
            due = due.select_for_update(skip_locked=True)
        # Without SKIP LOCKED, a transaction would keep others from writing while rows are sent. If
        # two forwarders read the same row, UNIQUE makes sure that it is added once.
        with transaction.atomic(self._alias) if self._locks else nullcontext():
            found = due.values_list("key", "queue", "body", "options", "attempts")[:limit]
            yield DjangoBatch(self._alias, [row_of(*record) for record in found], now)

    def waiting(self) -> Waiting:
        found = self._jobs.filter(sent=None).aggregate(
            rows=Count("id"), refused=Count("id", filter=Q(attempts__gt=0)), oldest=Min("added")
        )
        return Waiting(**found)

    def forget(self, before: float) -> int:
        deleted: int = self._jobs.filter(sent__lt=before).delete()[0]
        return deleted

    def listen(self) -> Notifications | None:
        if not self._has_psycopg_3():
            return None
        own = connections.create_connection(self._alias)
        own.ensure_connection()
        return Notifications(own.connection, TABLE)

    def disconnect(self) -> None:
        connections[self._alias].close()

    def _has_psycopg_3(self) -> bool:
        connection = connections[self._alias]
        return bool(connection.vendor == "postgresql" and connection.Database.__name__ == "psycopg")


class DjangoBatch:
    """See ``Batch``."""

    def __init__(self, alias: str, rows: Sequence[Row], now: float) -> None:
        self._alias = alias
        self._jobs = OutboxJob.objects.using(alias)
        self.rows = rows
        self._now = now

    def settle(
        self, sent: Sequence[tuple[Row, str]], refused: Sequence[Refusal], keep: bool
    ) -> None:
        with transaction.atomic(self._alias):
            if not keep:
                self._jobs.filter(key__in=[row.key for row, _ in sent]).delete()
            for row, id in sent if keep else ():
                self._jobs.filter(key=row.key).update(sent=self._now, job=id)
            for one in refused:
                self._jobs.filter(key=one.row.key).update(
                    attempts=F("attempts") + 1, error=one.error, again=one.again
                )
