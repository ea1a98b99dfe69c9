"""Object stores that tests share; a server is started for the first test that needs it."""

from tests.support.missing import MISSING

if not MISSING:
    from packages.spark.tests.support.s3 import s3, s3_server
    from packages.spark.tests.support.stores import (
        azure,
        azure_server,
        google,
        google_server,
        hadoop,
        hadoop_server,
    )

    __all__ = [
        "azure",
        "azure_server",
        "google",
        "google_server",
        "hadoop",
        "hadoop_server",
        "s3",
        "s3_server",
    ]
