"""Addresses of files (s3://, gs://, hdfs://): opened by pyarrow, refused within seconds, shown without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, quote

import pyarrow as pa
from pyarrow import fs

ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")
ADDRESS_AS_PATH = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:[/\\]")  # Path leaves out the second slash
PASSWORD = re.compile(r"(?<=:/)(/?)[^/?#@]*:[^/?#@]*@")
SECRET = re.compile(r"([?&][^=&#]*(?:secret|key|token|password|ticket|sig)[^=&#]*=)[^&#]*", re.IGNORECASE)

# pyarrow's own limits are a quarter of an hour for gs:// and, where an S3 server accepts a call and then is silent,
# above a hundred seconds.
GCS_RETRIES = "retry_limit_seconds"
GCS_SECONDS = 10
S3_CONNECT, S3_SILENCE, S3_ATTEMPTS = 3.0, 5.0, 4  # seconds, seconds, calls
S3_REBUILT = {"region", "scheme", "endpoint_override", "tls_ca_file_path"}  # what S3FileSystem can be asked for again
SIGNS = "/:@%*!$&'()+,;=~"  # of an address as they are; blanks and brackets are escaped
LONGEST = 300  # characters of what a file system says

CREDENTIALS = (
    "Check the credentials, which come from the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "GOOGLE_APPLICATION_CREDENTIALS) or a profile; buckets open to all are gs://anonymous@bucket."
)
WAYS_OUT = (  # what a file system says, and what to do
    (r"libhdfs|libjvm|HDFS", "hdfs:// needs Java and Hadoop's libhdfs: set JAVA_HOME, HADOOP_HOME and CLASSPATH."),
    (r"Unrecognized filesystem", "Addresses begin with s3://, gs://, abfs://, hdfs:// or file://. Download the files."),
    (r"ACCESS_DENIED|ACCESS_KEY|SIGNATURE|UNAUTH|PERMISSION|OAuth2|[Cc]redential|\b40[13]\b", CREDENTIALS),
    (r"NETWORK|UNAVAILABLE|CURL|curl|[Tt]imeout|DEADLINE", "Check the network and the server (endpoint_override=...)."),
)
WAY_OUT = "Check it, or copy the files to this machine."
Errors = type[Exception] | tuple[type[Exception], ...]


class UnreadableFileError(ValueError):
    """A file of a table cannot be read, or no longer."""


def open_address(text: str) -> tuple[fs.FileSystem, str]:
    """The file system of an address, which gives up within seconds, and the path in it."""
    if text.startswith(("gs://", "gcs://")) and GCS_RETRIES not in text:
        text += f"{'&' if '?' in text else '?'}{GCS_RETRIES}={GCS_SECONDS}"
    place, mark, query = text.partition("?")
    filesystem, path = fs.FileSystem.from_uri(quote(place, safe=SIGNS) + mark + query)
    asked = {name for name, _ in parse_qsl(query)}
    if isinstance(filesystem, getattr(fs, "S3FileSystem", ())) and asked <= S3_REBUILT:
        filesystem = _impatient(filesystem)
    return filesystem, path


def address_path(table: str | Path) -> str:
    """What an address names, without its query (which says how a server is reached); paths as they are."""
    text = str(table)
    return without_secrets(text).partition("?")[0] if ADDRESS.match(text) else text


def without_secrets(text: str) -> str:
    """Any text with passwords and keys of the addresses in it replaced by stars."""
    return SECRET.sub(r"\1***", PASSWORD.sub(r"\1***@", text))


def check_local(path: Path) -> None:
    """Refuse an address where results are written."""
    if ADDRESS_AS_PATH.match(str(path)):
        raise ValueError(
            f"Results are written to a disk of this machine. Got the address {without_secrets(str(path))!r}. Name a "
            "folder or file here, and copy it to its place afterwards."
        )


def refusal(text: str, error: Exception) -> ValueError:
    """The sentence for an address that cannot be opened."""
    return ValueError(f"The address {without_secrets(text)!r} cannot be opened: {_in_short(error)}. {_way_out(error)}")


@contextmanager
def reading(path: str, kind: str = "parquet", errors: Errors = (pa.ArrowException, OSError)) -> Iterator[None]:
    """Turn what a file system or pyarrow says while a file is read into a sentence that names the file."""
    try:
        yield
    except MemoryError:
        raise
    except errors as error:
        words = f"The file {path!r} cannot be read as {kind}: {_in_short(error)}. {_way_out(error)}"
        raise UnreadableFileError(words) from None


def _impatient(filesystem: fs.FileSystem) -> fs.FileSystem:
    """The same S3 file system with short timeouts: an address has no words for them, pickling has."""
    _, (options,) = filesystem.__reduce__()
    options |= {"connect_timeout": S3_CONNECT, "request_timeout": S3_SILENCE}
    return fs.S3FileSystem(**options, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPTS))


def _in_short(error: Exception) -> str:
    """What a file system says, without the traces of its libraries."""
    text = without_secrets(str(error)).split("\n")[0]
    text = re.sub(r"^google::cloud::Status\(|\s*error_info=.*|\s*\(Request ID: [^)]*\)", "", text)
    return (text if len(text) <= LONGEST else text[: LONGEST - 3] + "...").rstrip(".: ")


def _way_out(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "Check whether it is still there."
    found = [way for pattern, way in WAYS_OUT if re.search(pattern, str(error))]
    return found[0] if found else WAY_OUT
