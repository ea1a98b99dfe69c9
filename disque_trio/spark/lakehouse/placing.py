"""Where tables are: moves files into them, and tells libraries how to get there."""

import os

from disque_trio.spark.files import Location
from disque_trio.spark.filesystems import LOCAL, S3
from disque_trio.spark.lakehouse.settings import TableError

# What ``deltalake`` calls the options of S3.
_OF_S3 = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
    "region": "AWS_REGION",
}


def placed(source: Location, target: Location) -> None:
    """Move a file, on the disk, in one step; one that has the name is replaced.

    It counts as written now: what a table does not have yet goes when it is old, and a batch may
    have been written for hours.
    """
    target.parent.make_directory()
    if source.local is not None:
        os.utime(source.local)
    source.sync()
    source.rename(target)
    target.parent.sync()


def for_deltalake(directory: Location) -> tuple[str, dict[str, str]]:
    """The address of a Delta table, and the options for it, as ``deltalake`` takes them.

    On S3 it commits by a PUT with a condition, which the server sees to.

    Raises:
        TableError: it can be there in no way that was tried.
    """
    if directory.scheme == LOCAL:
        return directory.path, {}
    if directory.scheme not in S3:
        raise TableError(f"{directory}: Delta tables can be on this machine and on S3")
    given = dict(directory.options)
    options = {_OF_S3[name]: value for name, value in given.items() if name in _OF_S3}
    if "endpoint_override" in given:
        scheme = given.get("scheme", "https")
        options["AWS_ENDPOINT_URL"] = f"{scheme}://{given['endpoint_override']}"
        options["AWS_ALLOW_HTTP"] = str(scheme == "http").lower()
    return f"s3://{directory.authority}{directory.path}", options
