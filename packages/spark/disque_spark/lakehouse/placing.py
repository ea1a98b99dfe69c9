"""Moves files into tables, and translates locations of tables for libraries."""

import os

from disque_spark.files import Location
from disque_spark.filesystems import LOCAL, S3
from disque_spark.lakehouse.settings import TableError

# The options of S3, and ``deltalake``'s names for them.
_OF_S3 = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
    "region": "AWS_REGION",
}


def placed(source: Location, target: Location) -> None:
    """Move a file atomically and durably; replaces a file that has the name.

    Sets its time to now: old files that a table does not refer to are removed, and writing a batch
    may have taken hours.
    """
    target.parent.make_directory()
    if source.local is not None:
        os.utime(source.local)
    source.sync()
    source.rename(target)
    target.parent.sync()


def for_deltalake(directory: Location) -> tuple[str, dict[str, str]]:
    """The address of a Delta table, and its storage options, for ``deltalake``.

    On S3, it commits with conditional PUTs.

    Raises:
        TableError: the file system is not supported.
    """
    if directory.scheme == LOCAL:
        return directory.path, {}
    if directory.scheme not in S3:
        raise TableError(f"{directory}: Delta tables have to be on a local file system or S3")
    given = dict(directory.options)
    options = {_OF_S3[name]: value for name, value in given.items() if name in _OF_S3}
    if "endpoint_override" in given:
        scheme = given.get("scheme", "https")
        options["AWS_ENDPOINT_URL"] = f"{scheme}://{given['endpoint_override']}"
        options["AWS_ALLOW_HTTP"] = str(scheme == "http").lower()
    return f"s3://{directory.authority}{directory.path}", options
