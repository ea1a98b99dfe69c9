"""A backend of Django's tasks on Disque:

    TASKS = {"default": {"BACKEND": "disque_trio.integrations.django.DisqueBackend",
                         "OPTIONS": {"url": "disque://127.0.0.1:7711"}}}

with ``disque_trio.integrations.django`` among the INSTALLED_APPS for ``manage.py disque_worker``.
It is for ``django.tasks``, or ``django_tasks`` where Django has none yet.
"""

from disque_trio.extras import how_to_install

try:
    import django as _django  # noqa: F401
except ImportError as error:
    raise ImportError(f"Django is not installed: {how_to_install('django')}") from error

from disque_trio.integrations.django.backend import DisqueBackend

__all__ = ["DisqueBackend"]
