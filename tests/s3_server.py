"""A server that speaks as much of S3 as reading takes: metadata, ranges of bytes, lists of keys. No key is checked."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

HEADERS = {"ETag": '"1"', "Last-Modified": "Mon, 16 Nov 2026 12:00:00 GMT", "Content-Type": "application/octet-stream"}


class S3Server(ThreadingHTTPServer):
    """Objects by bucket/key.

    Attributes
    ----------
    denies : answer 403 to everything
    ends_after : how many calls are answered before all others are refused with 503, as by a server that goes away
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.denies, self.calls = False, 0
        self.ends_after = 10**9

    def address(self, path: str, scheme: str = "s3", userinfo: str = "key:hush") -> str:
        """The address of a bucket, a folder, a key or a glob."""
        return f"{scheme}://{userinfo}@{path}?scheme=http&endpoint_override=127.0.0.1:{self.server_port}"


@contextmanager
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: S3Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else every answer waits 40 ms
    wbufsize = -1

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, *, body: bool) -> None:
        self.server.ends_after -= 1
        self.server.calls += 1
        parts = urlsplit(self.path)
        name, query = unquote(parts.path).strip("/"), parse_qs(parts.query)
        if self.server.denies:
            self._send(403, b"", body=body)
        elif self.server.ends_after < 0:
            self._send(503, b"", body=body)
        elif "list-type" in query:
            self._send(200, self._list(name, query.get("prefix", [""])[0], query.get("delimiter", [""])[0]), body=body)
        elif name in self.server.objects:
            self._send_range(self.server.objects[name], body=body)
        else:
            self._send(404, b"", body=body)

    def _send_range(self, content: bytes, *, body: bool) -> None:
        asked = self.headers.get("Range")
        if asked is None:
            self._send(200, content, body=body)
            return
        first, last = (int(number) for number in asked.removeprefix("bytes=").split("-"))
        last = min(last, len(content) - 1)
        self._send(
            206, content[first : last + 1], body=body, **{"Content-Range": f"bytes {first}-{last}/{len(content)}"}
        )

    def _send(self, status: int, content: bytes, *, body: bool, **more: str) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **more, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def _list(self, bucket: str, prefix: str, delimiter: str) -> bytes:
        keys = sorted(name.partition("/")[2] for name in self.server.objects if name.startswith(f"{bucket}/"))
        rests = {key: key[len(prefix) :] for key in keys if key.startswith(prefix)}
        nested = {key for key, rest in rests.items() if delimiter and "/" in rest}
        folders = {f"{prefix}{rests[key].partition('/')[0]}/" for key in nested}
        files = [key for key in rests if key not in nested]
        listed = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-16T12:00:00.000Z</LastModified><ETag>1</ETag>"
            f"<Size>{len(self.server.objects[f'{bucket}/{key}'])}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            for key in files
        ) + "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders))
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(files) + len(folders)}</KeyCount>"
            f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{listed}</ListBucketResult>"
        ).encode()
