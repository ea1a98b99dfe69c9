"""Django in the test process, where it can be set up only once."""

from typing import Any

import django
from django.conf import settings
from django.test import override_settings

from packages.integrations.tests.support.task_story import RETRY

if not settings.configured:
    settings.configure(
        SECRET_KEY="tests",
        USE_TZ=True,
        INSTALLED_APPS=["disque_integrations.django"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    )
    django.setup()


def tasks_on(url: str, **options: Any) -> dict[str, Any]:
    """The setting TASKS for these nodes."""
    return {
        "default": {
            "BACKEND": "disque_integrations.django.DisqueBackend",
            "QUEUES": ["default", "mail"],
            "OPTIONS": {"url": url, "retry": RETRY, **options},
        }
    }


from disque_integrations.django import backend  # noqa: E402

with override_settings(TASKS=tasks_on("disque://127.0.0.1:7711")):
    # Tasks read their backend when they are created.
    from packages.integrations.tests.support import django_tasks_of_tests as tasks

__all__ = ["disconnect", "tasks", "tasks_on"]


def disconnect() -> None:
    """Close the backends' connections."""
    while backend._links:
        _, link = backend._links.popitem()
        link.close()
