"""The settings of a Django project that tests run, and its manage.py: ``python -m
packages.integrations.tests.support.django_project disque_worker``."""

import os

from packages.integrations.tests.support.task_story import RETRY

SECRET_KEY = "tests"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DJANGO_DATABASE", ":memory:"),
    }
}
INSTALLED_APPS = ["disque_integrations.django"]
TASKS = {
    "default": {
        "BACKEND": "disque_integrations.django.DisqueBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {
            "url": os.environ.get("DISQUE_URL", "disque://127.0.0.1:7711"),
            "prefix": os.environ.get("PREFIX", "django"),
            "retry": RETRY,
            "modules": ["packages.integrations.tests.support.django_tasks_of_tests"],
            "replicate": int(os.environ.get("REPLICATE", "1")),
        },
    }
}


def main() -> None:
    """Its manage.py."""
    from django.core.management import execute_from_command_line

    os.environ["DJANGO_SETTINGS_MODULE"] = __spec__.name
    execute_from_command_line()


if __name__ == "__main__":
    main()
