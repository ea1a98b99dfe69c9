"""Makes a file that must not be there yet, where others may try the same at the same time."""

import errno
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Protocol, Self
from uuid import uuid4

from disque_trio.spark.filesystems import (
    HADOOP,
    LOCAL,
    S3,
    FileSystemError,
    Opened,
    Options,
    renamer,
    s3_client,
)
from disque_trio.spark.remote import FAILURES, in_a_line

STALE_SECONDS = 60.0  # after which a claim is of somebody who has died
_PATIENCE = 120.0  # s that others may claim a file
_TRIES = 8
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
_PAUSE = 0.05
_CONFLICT, _EXISTS, _UNKNOWN = 409, 412, 501


class File(Protocol):
    """What this needs of a ``files.Location``."""

    @property
    def scheme(self) -> str: ...
    @property
    def authority(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def options(self) -> Options: ...
    @property
    def name(self) -> str: ...
    @property
    def parent(self) -> Self: ...
    def with_name(self, name: str) -> Self: ...
    def exists(self) -> bool: ...
    def ages(self) -> Sequence[tuple[Self, float]]: ...
    def open_output(self) -> BinaryIO: ...
    def write_bytes(self, data: bytes) -> None: ...
    def filesystem(self) -> Opened: ...
    def sync(self) -> None: ...
    def delete(self) -> None: ...


def put_new(place: File, data: bytes) -> bool:
    """Make a file if there is none, in the best way that its file system has; returns whether.

    - on this machine by a hard link: the file system sees to it; it is brought to the disk.
    - on S3, with the extra ``s3``, by a PUT with a condition, and on HDFS, with the extra
      ``hdfs``, by a rename that replaces nothing: the server sees to it. All who write there
      need the extra.
    - elsewhere by claims (``put_by_claim``): who says so first, in a file beside it,
      writes. That holds as long as lists of files are up to date, as those of S3, Google, Azure
      and HDFS are, and nobody halts for more than a minute between his claim and his write.

    Raises:
        OSError: the file system says no.
    """
    if place.scheme == LOCAL:
        return put_by_link(place, data)
    if place.scheme in S3:
        done = put_conditionally(place.authority, place.path[1:], data, place.options)
        if done is not None:
            return done
    rename = renamer(place.filesystem().system) if place.scheme in HADOOP else None
    return put_by_claim(place, data) if rename is None else put_by_rename(place, data, rename)


def put_by_link(place: File, data: bytes) -> bool:
    """Make a file of this machine if there is none, and bring it to the disk; returns whether.

    Raises:
        OSError: the file system says no.
    """
    try:
        with _beside(place, data) as temporary:
            temporary.sync()
            os.link(temporary.path, place.path)
    except FileExistsError:
        return False
    except OSError as problem:
        if problem.errno not in _NO_LINKS:
            raise
        return put_by_claim(place, data)
    place.parent.sync()
    return True


def put_by_rename(place: File, data: bytes, rename: Callable[[str, str], None]) -> bool:
    """Make a file if there is none; returns whether.

    Args:
        rename: gives a file another name in one step, and raises FileExistsError if it is taken.

    Raises:
        OSError: the file system says no.
    """
    try:
        with _beside(place, data) as temporary:
            rename(temporary.path, place.path)
    except FileExistsError:
        return False
    except FAILURES as problem:
        raise in_a_line(str(place), place.authority, problem) from problem
    return True


@contextmanager
def _beside(place: File, data: bytes) -> Iterator[File]:
    """A temporary file with ``data`` in the same directory; it is deleted after the block."""
    temporary = place.with_name(f".{place.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open_output() as file:
            file.write(data)
        yield temporary
    finally:
        temporary.delete()


def put_conditionally(bucket: str, key: str, data: bytes, options: Options) -> bool | None:
    """Make an object on S3 if there is none; returns whether. None: botocore is not installed, or
    the server knows no conditions.

    Raises:
        FileSystemError: the server refuses it for another reason.
    """
    client = s3_client(options)
    if client is None:
        return None
    from botocore.exceptions import BotoCoreError, ClientError

    mine = uuid4().hex
    text = f"s3a://{bucket}/{key}"
    try:
        for attempt in range(_TRIES):
            try:
                client.put_object(
                    Bucket=bucket, Key=key, Body=data, IfNoneMatch="*", Metadata={"writer": mine}
                )
            except ClientError as refused:
                status = refused.response["ResponseMetadata"]["HTTPStatusCode"]
                if status == _EXISTS:
                    # Perhaps an answer was lost, and this was a second try.
                    there = client.head_object(Bucket=bucket, Key=key)
                    return bool(there["Metadata"].get("writer") == mine)
                if status == _UNKNOWN:
                    return None
                if status != _CONFLICT:  # of two at the same moment neither may have won
                    said = refused.response["Error"]
                    kind = PermissionError if status == 403 else FileSystemError
                    raise kind(f"{text}: {said.get('Code')}: {said.get('Message')}") from refused
                time.sleep(random.uniform(0, _PAUSE) * 2**attempt)
            else:
                return True
    except BotoCoreError as problem:
        raise FileSystemError(f"{text}: {problem}") from problem
    raise FileSystemError(f"{text}: others write it, again and again")


def put_by_claim(place: File, data: bytes, pause: Callable[[float], None] = time.sleep) -> bool:
    """Make a file if there is none; returns whether.

    Each writer puts a claim of its own beside the file, and then lists the claims. If there is no
    other one it writes; else it gives way. Two cannot both see none: the later claim is put when
    the earlier one is there. A claim that is much older than one's own is of a writer that died,
    as far as the file system says how old files are.

    Args:
        pause: waits so many seconds.

    Raises:
        OSError: the file system says no, or others have claims all the time.
    """
    prefix = f"_claim.{place.name}."
    deadline = time.monotonic() + _PATIENCE
    attempt = 0
    others: list[str] = []
    while time.monotonic() < deadline:
        if place.exists():
            return False
        mine = place.with_name(prefix + uuid4().hex)
        mine.write_bytes(b"")
        try:
            others = _others(mine, prefix)
            if not others:
                if place.exists():
                    return False
                place.write_bytes(data)
                return True
        finally:
            mine.delete()
        pause(random.uniform(0, _PAUSE) * 2 ** min(attempt, 6))
        attempt += 1
    text = f"{place}: claimed by {', '.join(others)}: delete that if nobody writes there"
    raise FileSystemError(text)


def _others(mine: File, prefix: str) -> list[str]:
    """The claims of others that live. The file system's clock says how old they are."""
    claims = [(found.name, time) for found, time in mine.parent.ages()]
    times = {name: time for name, time in claims if name.startswith(prefix)}
    if mine.name not in times:
        raise FileSystemError(f"{mine.parent}: its list of files is not up to date")
    now = times.pop(mine.name)
    return [name for name, at in times.items() if now - at < STALE_SECONDS]
