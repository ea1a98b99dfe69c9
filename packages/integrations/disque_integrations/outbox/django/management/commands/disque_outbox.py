"""``manage.py disque_outbox``."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import router

from disque_integrations.outbox.django.models import OutboxJob
from disque_integrations.outbox.options import add_options


class Command(BaseCommand):
    """Forwards rows; the options are those of ``disque-outbox``."""

    help = "Forward the jobs that the project adds in its transactions to Disque."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--database", metavar="ALIAS", help="database alias (default: the table's)"
        )
        add_options(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        from argparse import Namespace

        from disque_integrations.outbox.django.store import DjangoStore
        from disque_integrations.outbox.running import run

        alias = options["database"] or router.db_for_write(OutboxJob)
        status = run(DjangoStore(alias), Namespace(**options))
        if status:
            sys.exit(status)
