import uuid
from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar = [
        migrations.CreateModel(
            name="OutboxJob",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("key", models.UUIDField(default=uuid.uuid4, unique=True)),
                ("queue", models.TextField()),
                ("body", models.BinaryField()),
                ("options", models.TextField(db_default="{}", default="{}")),
                ("added", models.FloatField()),
                ("again", models.FloatField(db_default=0, default=0)),
                ("attempts", models.IntegerField(db_default=0, default=0)),
                ("error", models.TextField(null=True)),
                ("sent", models.FloatField(null=True)),
                ("job", models.TextField(null=True)),
            ],
            options={
                "verbose_name": "job in the outbox",
                "verbose_name_plural": "jobs in the outbox",
                "db_table": "disque_outbox",
                "indexes": [
                    models.Index(
                        fields=["id"],
                        name="disque_outbox_waiting",
                        condition=models.Q(sent__isnull=True),
                    )
                ],
            },
        ),
    ]
