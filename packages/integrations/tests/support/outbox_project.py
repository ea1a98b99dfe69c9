"""A Django project with an outbox; its settings are JSON in the environment.

``python -m packages.integrations.tests.support.outbox_project COMMAND ...`` is its ``manage.py``;
the command ``transactions`` adds jobs in several ways.
"""

import json
import os
import sys

import django
from django.conf import settings
from django.db import transaction

settings.configure(
    INSTALLED_APPS=["disque_integrations.outbox.django"],
    DATABASES={"default": json.loads(os.environ["PROJECT_DATABASE"])},
)


def transactions() -> None:
    """Add jobs, of which ``1``, ``2``, ``4`` and ``5`` are committed."""
    from disque_integrations.outbox.django import add
    from disque_integrations.outbox.django.models import OutboxJob

    with transaction.atomic():
        key = add("q", "1", priority=3)
        add("q", b"2")
    assert str(OutboxJob.objects.get(key=key)) == f"q {key}"
    try:
        with transaction.atomic():
            add("q", "no")
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    with transaction.atomic():
        point = transaction.savepoint()
        add("q", "no")
        transaction.savepoint_rollback(point)
        add("q", "4")
    add("q", "5", using="default")
    try:
        add("q", "no", priority=9)
    except ValueError:
        pass


if __name__ == "__main__":
    if sys.argv[1:] == ["transactions"]:
        django.setup()
        transactions()
    else:
        from django.core.management import execute_from_command_line

        execute_from_command_line(sys.argv)
