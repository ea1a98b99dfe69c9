"""The table, the same as ``disque_integrations.outbox.table`` describes for SQLAlchemy."""

from uuid import uuid4

from django.db import connections, models, router

from disque_integrations.outbox.rows import TABLE, Columns


class OutboxJob(models.Model):
    """A job to add. Times are seconds since the epoch.

    Attributes:
        key: the UNIQUE key.
        options: the options of ADDJOB, as JSON.
        again: it is not tried before this time.
        attempts: how often it was refused.
        error: why it was refused.
        sent: when it was forwarded; None until then.
        job: the id of the job, once it was forwarded.
    """

    key = models.UUIDField(unique=True, default=uuid4)
    queue = models.TextField()
    body = models.BinaryField()
    options = models.TextField(default="{}", db_default="{}")
    added = models.FloatField()
    again = models.FloatField(default=0, db_default=0)
    attempts = models.IntegerField(default=0, db_default=0)
    error = models.TextField(null=True)
    sent = models.FloatField(null=True)
    job = models.TextField(null=True)

    class Meta:
        app_label = "disque_outbox"
        db_table = TABLE
        verbose_name = "job in the outbox"
        verbose_name_plural = "jobs in the outbox"
        indexes = (
            models.Index(
                fields=["id"], name=f"{TABLE}_waiting", condition=models.Q(sent__isnull=True)
            ),
        )

    def __str__(self) -> str:
        return f"{self.queue} {self.key}"


def write(values: Columns, using: str | None) -> None:
    """Write a row in the transaction of the database ``using``. PostgreSQL notifies the forwarder
    at the commit."""
    alias = using or router.db_for_write(OutboxJob)
    OutboxJob.objects.using(alias).create(**values)
    connection = connections[alias]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, '')", [TABLE])
