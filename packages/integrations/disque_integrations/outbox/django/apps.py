"""The Django app."""

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """``disque_integrations.outbox.django``, with the label ``disque_outbox``."""

    name = "disque_integrations.outbox.django"
    label = "disque_outbox"
    verbose_name = "Disque outbox"
    default_auto_field = "django.db.models.BigAutoField"
