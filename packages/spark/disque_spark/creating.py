"""Creates a file that must not exist yet, while others may try the same."""

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Protocol, Self
from uuid import uuid4

from disque_spark.filesystems import (
    HADOOP,
    LOCAL,
    S3,
    FileSystemError,
    Opened,
    Options,
    renamer,
    s3_client,
)
from disque_spark.remote import FAILURES, in_a_line
from disque_trio.respclient.randomness import RANDOM

STALE_SECONDS = 60.0  # after this time, the owner of a claim has died
_PATIENCE = 120.0  # s; give up if others hold claims for longer
_TRIES = 8
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
_PAUSE = 0.05
_CONFLICT, _EXISTS, _UNKNOWN = 409, 412, 501


class File(Protocol):
    """The parts of ``files.Location`` that this module needs."""

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
    """Create a file unless it exists, in the best way that its file system offers. Returns whether
    this call created it.

    - On local file systems by a hard link, which is atomic; the file is synced to disk.
    - On S3, with the extra ``s3``, by a conditional PUT; on HDFS, with the extra ``hdfs``, by a
      rename that never replaces a file. Both are atomic. All writers need the extra.
    - Elsewhere by claims (``put_by_claim``): the first writer to claim the file, in another file
      beside it, writes it. This is safe if listings are consistent, as those of S3, Google, Azure
      and HDFS are, and no writer pauses for more than a minute between its claim and its write.

    Raises:
        OSError: the file system refuses.
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
    """Create a local file unless it exists, and sync it to disk. Returns whether this call created
    it.

    Raises:
        OSError: the file system refuses.
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
    """Create a file unless it exists. Returns whether this call created it.

    Args:
        rename: renames a file atomically, or raises FileExistsError if the name is taken.

    Raises:
        OSError: the file system refuses.
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
    """A temporary file with ``data`` in the same directory; deleted after the block."""
    temporary = place.with_name(f".{place.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open_output() as file:
            file.write(data)
        yield temporary
    finally:
        temporary.delete()


def put_conditionally(bucket: str, key: str, data: bytes, options: Options) -> bool | None:
    """Create an object on S3 unless it exists. Returns whether this call created it; None if
    botocore is not installed, or the server does not support conditional PUTs.

    Raises:
        FileSystemError, PermissionError: the server refuses for another reason.
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
                    # Perhaps the answer to our first attempt was lost, and this was a retry.
                    there = client.head_object(Bucket=bucket, Key=key)
                    return bool(there["Metadata"].get("writer") == mine)
                if status == _UNKNOWN:
                    return None
                if status != _CONFLICT:  # of two writers at the same moment, neither may have won
                    said = refused.response["Error"]
                    kind = PermissionError if status == 403 else FileSystemError
                    raise kind(f"{text}: {said.get('Code')}: {said.get('Message')}") from refused
                time.sleep(RANDOM.uniform(0, _PAUSE) * 2**attempt)
            else:
                return True
    except BotoCoreError as problem:
        raise FileSystemError(f"{text}: {problem}") from problem
    raise FileSystemError(f"{text}: others keep writing it")


def put_by_claim(place: File, data: bytes, pause: Callable[[float], None] = time.sleep) -> bool:
    """Create a file unless it exists. Returns whether this call created it.

    Each writer puts a claim of its own beside the file, and then lists the claims. If there is no
    other claim, it writes; otherwise it withdraws its claim and tries again. Two writers cannot
    both see no other claim: when the later claim is put, the earlier one is there. A claim that is
    much older than one's own, by the file system's clock, belongs to a writer that died.

    Args:
        pause: sleeps for the given seconds.

    Raises:
        OSError: the file system refuses, or others hold claims all the time.
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
        pause(RANDOM.uniform(0, _PAUSE) * 2 ** min(attempt, 6))
        attempt += 1
    text = f"{place}: claimed by {', '.join(others)}: delete this claim if nobody writes there"
    raise FileSystemError(text)


def _others(mine: File, prefix: str) -> list[str]:
    """The claims of other live writers, whose age is measured by the file system's clock."""
    claims = [(found.name, time) for found, time in mine.parent.ages()]
    times = {name: time for name, time in claims if name.startswith(prefix)}
    if mine.name not in times:
        raise FileSystemError(f"{mine.parent}: its listing is not up to date")
    now = times.pop(mine.name)
    return [name for name, at in times.items() if now - at < STALE_SECONDS]
