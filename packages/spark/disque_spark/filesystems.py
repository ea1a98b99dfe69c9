"""Opens file systems: with pyarrow, or with fsspec those that pyarrow does not have.

Options have the names that pyarrow's or fsspec's classes give them. What they leave open, these
find out themselves, such as the role of a machine or the profile of a user.
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs

from disque_trio.respclient.randomness import RANDOM

Options = tuple[tuple[str, str], ...]  # names and values, sorted

LOCAL = "file"
S3 = ("s3", "s3a", "s3n")
AZURE = ("abfs", "abfss", "wasb", "wasbs")
GOOGLE = ("gs", "gcs")
HADOOP = ("hdfs", "viewfs")

# What libraries raise when a file system fails; HDFS's raises RuntimeErrors as well.
FAILURES = (OSError, pa.ArrowException, RuntimeError)
_TRIES = 8  # attempts to create an object that others write, too
_PAUSE = 0.05  # s
_CONFLICT, _EXISTS = 409, 412
_ATTEMPTS = 6  # attempts of a request to S3 that fails for a transient reason
_S3_SECONDS: dict[str, object] = {"connect_timeout": 10.0, "request_timeout": 30.0}


def _flag(text: str) -> bool:
    return text.lower() not in ("false", "0", "")


_TYPES: dict[str, Callable[[str], object]] = {  # of options that are not text
    **dict.fromkeys(("anonymous", "force_virtual_addressing", "allow_bucket_creation"), _flag),
    **dict.fromkeys(("connect_timeout", "request_timeout"), float),
    **dict.fromkeys(("replication", "buffer_size"), int),
    "retry_time_limit": lambda text: timedelta(seconds=float(text)),
}
# Settings of Spark's S3A file system and variables of the environment, with pyarrow's names.
_S3A = {
    "access.key": "access_key",
    "secret.key": "secret_key",
    "session.token": "session_token",
    "endpoint": "endpoint_override",
    "endpoint.region": "region",
}
_VARIABLES = {
    "AWS_DEFAULT_REGION": "region",
    "AWS_REGION": "region",
    "AWS_ENDPOINT_URL": "endpoint_override",
    "AWS_ENDPOINT_URL_S3": "endpoint_override",
    "AWS_ACCESS_KEY_ID": "access_key",
    "AWS_SECRET_ACCESS_KEY": "secret_key",
    "AWS_SESSION_TOKEN": "session_token",
}
_KEYS = ("access_key", "secret_key", "session_token")  # only used together, from one place
_GONE = re.compile(
    r"No such (?:file or )?directory|object does not exist|NO_SUCH_KEY|RESOURCE_NOT_FOUND"
    r"|NOT_FOUND|HTTP status 404|\] 404 "
)
_NO_BUCKET = re.compile(
    r"NO_SUCH_BUCKET|ContainerNotFound"
    r"|NOT_FOUND.*function=(?:ListObjects|CreateResumableUpload)"
)
_REFUSED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|PERMISSION_DENIED"
    r"|UNAUTHENTICATED|HTTP status 403|\] 40[13] "
)
_MORE = re.compile(r"(?:\n|\\n)(?:\t|\\t)at | \(Request ID| Request ?I[Dd]:| error_info=")


class FileSystemError(OSError):
    """A file system refuses or fails; the text, one line, says where and why."""


class Opened(NamedTuple):
    """A pyarrow file system, and a path in the form that it takes."""

    system: Any
    path: str


def options_of(
    scheme: str,
    authority: str,
    query: str = "",
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Options:
    """The options of a file system. The query overrides settings, which override the environment.

    Args:
        settings: Spark settings, with or without the prefix ``spark.hadoop.``; only those of file
            systems are used.
        environment: None: that of this process.
    """
    found = dict(parse_qsl(query, keep_blank_values=True))
    plain = {name.removeprefix("spark.hadoop."): text for name, text in (settings or {}).items()}
    environment = os.environ if environment is None else environment
    levels: list[dict[str, str]] = []
    if scheme in S3:
        s3a: dict[str, str] = {}
        for prefix in ("fs.s3a.", f"fs.s3a.bucket.{authority}."):
            s3a |= {_S3A[n]: plain[prefix + n] for n in _S3A if plain.get(prefix + n)}
            if plain.get(prefix + "connection.ssl.enabled") == "false":
                s3a["scheme"] = "http"
        levels = [s3a, {_VARIABLES[n]: environment[n] for n in _VARIABLES if environment.get(n)}]
    elif scheme in AZURE:
        key = plain.get(f"fs.azure.account.key.{authority.rpartition('@')[2]}")
        levels = [{"account_key": key or environment.get("AZURE_STORAGE_KEY", "")}]
    for level in levels:
        own = _KEYS if any(name in found for name in _KEYS) else ()
        found = {n: text for n, text in level.items() if text and n not in own} | found
    if "://" in found.get("endpoint_override", ""):
        url = urlsplit(found["endpoint_override"])
        found |= {"endpoint_override": url.netloc, "scheme": url.scheme}
    return tuple(sorted(found.items()))


def opened(scheme: str, authority: str, path: str, options: Options) -> Opened:
    """The pyarrow file system of a URI, and the path in it. Cached: there is one object for each
    file system in a process.

    Raises:
        FileSystemError: it is of an unknown kind, or cannot be reached.
    """
    try:
        system = _system(scheme, authority, options)
    except (*FAILURES, ImportError, ValueError, TypeError, AttributeError) as problem:
        said = str(problem).strip().partition("\n")[0]
        raise FileSystemError(f"{scheme}://{authority}: {said}") from problem
    if scheme in (LOCAL, *HADOOP):
        return Opened(system, path or "/")
    if scheme in AZURE:
        return Opened(system, authority.partition("@")[0] + path)
    if scheme in (*S3, *GOOGLE):
        return Opened(system, authority + path)
    return Opened(system, system.handler.fs._strip_protocol(f"{scheme}://{authority}{path}"))


@cache
def _system(scheme: str, authority: str, options: Options) -> Any:
    given: dict[str, Any] = {name: _TYPES.get(name, str)(text) for name, text in options}
    if scheme == LOCAL:
        return pafs.LocalFileSystem()
    if scheme in S3:
        retries = pafs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS)
        return pafs.S3FileSystem(retry_strategy=retries, **(_S3_SECONDS | given))
    if scheme in GOOGLE:
        return pafs.GcsFileSystem(**({"retry_time_limit": timedelta(seconds=60)} | given))
    if scheme in AZURE:
        account = authority.rpartition("@")[2].partition(".")[0]
        return pafs.AzureFileSystem(**({"account_name": account} | given))
    if scheme in HADOOP:
        url = urlsplit(f"//{authority}")
        host = f"viewfs://{authority}" if scheme == "viewfs" else url.hostname or "default"
        return pafs.HadoopFileSystem(host, url.port or 0, **given)
    import fsspec

    return pafs.PyFileSystem(pafs.FSSpecHandler(fsspec.filesystem(scheme, **given)))


def in_a_line(place: str, bucket: str, problem: Exception) -> OSError:
    """An error of the same kind, with one line of text for people."""
    whole = " ".join(str(problem).split())
    text = _MORE.split(whole, maxsplit=1)[0]
    if _NO_BUCKET.search(whole):
        return FileNotFoundError(f"{place}: no bucket {bucket.partition('@')[0]}")
    if isinstance(problem, FileNotFoundError) or _GONE.search(whole):
        return FileNotFoundError(f"nothing at {place}")
    if isinstance(problem, PermissionError) or _REFUSED.search(whole):
        return PermissionError(f"{place}: {text}")
    return FileSystemError(f"{place}: {text}")


def put_conditionally(bucket: str, key: str, data: bytes, options: Options) -> bool:
    """Create an object on S3 unless it exists. Returns whether this call created it.

    Raises:
        FileSystemError, PermissionError: the server refuses for another reason, or botocore is not
            installed.
    """
    place = f"s3a://{bucket}/{key}"
    client = s3_client(options)
    from botocore.exceptions import BotoCoreError, ClientError

    mine = {"writer": uuid4().hex}
    try:
        for attempt in range(_TRIES):
            try:
                client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*", Metadata=mine)
            except ClientError as refused:
                status = refused.response["ResponseMetadata"]["HTTPStatusCode"]
                if status == _EXISTS:
                    # Perhaps the answer to our first attempt was lost, and this was a retry.
                    return bool(client.head_object(Bucket=bucket, Key=key)["Metadata"] == mine)
                if status != _CONFLICT:  # of two writers at the same moment, neither may have won
                    kind = PermissionError if status == 403 else FileSystemError
                    raise kind(f"{place}: {refused}") from refused
                time.sleep(RANDOM.uniform(0, _PAUSE) * 2**attempt)
            else:
                return True
    except BotoCoreError as problem:
        raise FileSystemError(f"{place}: {problem}") from problem
    raise FileSystemError(f"{place}: others keep writing it")


@cache
def s3_client(options: Options) -> Any:
    """A botocore client, for what pyarrow cannot do: PUTs with a condition.

    Raises:
        FileSystemError: botocore is not installed.
    """
    try:
        import botocore.config
        import botocore.session
    except ImportError:
        raise FileSystemError(
            "s3: a file that only one writer may make needs botocore: pip install botocore"
        ) from None
    given = dict(options)
    endpoint = given.get("endpoint_override")
    config: dict[str, Any] = {
        "connect_timeout": float(given.get("connect_timeout", "10")),
        "read_timeout": float(given.get("request_timeout", "30")),
        "retries": {"max_attempts": _ATTEMPTS, "mode": "standard"},
    }
    if _flag(given.get("anonymous", "")):
        config["signature_version"] = botocore.UNSIGNED
    return botocore.session.Session().create_client(
        "s3",
        region_name=given.get("region", "us-east-1" if endpoint else None),
        endpoint_url=f"{given.get('scheme', 'https')}://{endpoint}" if endpoint else None,
        aws_access_key_id=given.get("access_key"),
        aws_secret_access_key=given.get("secret_key"),
        aws_session_token=given.get("session_token"),
        verify=given.get("tls_ca_file_path"),
        config=botocore.config.Config(**config),
    )
