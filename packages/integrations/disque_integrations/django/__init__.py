"""A backend for Django's tasks:

    TASKS = {"default": {"BACKEND": "disque_integrations.django.DisqueBackend",
                         "OPTIONS": {"url": "disque://127.0.0.1:7711"}}}

Add ``disque_integrations.django`` to INSTALLED_APPS for ``manage.py disque_worker``. It works
with ``django.tasks``, or with ``django_tasks`` for older versions of Django.
"""

from disque_trio.extras import how_to_install

try:
    import django as _django  # noqa: F401
except ImportError as error:
    raise ImportError(f"Django is not installed: {how_to_install('django')}") from error

from disque_integrations.django.backend import DisqueBackend

__all__ = ["DisqueBackend"]
