"""An object store on this machine that pyarrow's S3 client reads and writes; it accepts any key.

`s3_server` has moto's, which knows the protocol better, where moto is installed. This one is always there.
"""

import io
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class ObjectStore(ThreadingHTTPServer):
    """The server.

    Attributes:
        objects: The stored bytes by ``bucket/key``.
        parts: The parts of uploads that are not complete, by ``bucket/key``.
        seen: The ``Authorization`` of every request.
        refusal: What every request whose answer has a body is refused with; empty answers them.
        fault: Called with every request first; what it returns True for is not answered, and the connection
            is closed.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: MutableMapping[str, bytes] = {}
        self.parts: dict[str, dict[int, bytes]] = defaultdict(dict)
        self.seen: list[str] = []
        self.refusal = ""
        self.fault: Callable[[Handler], bool] | None = None

    @property
    def options(self) -> str:
        """What an address ends with, for this server to answer."""
        return f"?endpoint_override=127.0.0.1:{self.server_address[1]}&scheme=http&region=us-east-1"

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no news."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: ObjectStore
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # Each answer would take 40 ms.

    def parse_request(self) -> bool:
        """Read the head of a request, and let the server's fault answer it."""
        if not super().parse_request():
            return False
        if self.server.fault is None or not self.server.fault(self):
            return True
        self.close_connection = True
        return False

    def _asked(self) -> tuple[str, dict[str, str]]:
        self.server.seen.append(self.headers.get("Authorization", ""))
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        return unquote(parts.path).strip("/"), query

    def do_HEAD(self) -> None:
        """Say whether an object, or a bucket, is there."""
        name, _ = self._asked()
        data = self.server.objects.get(name)
        bucket = "/" not in name
        self.send(200 if bucket or data is not None else 404, data or b"")

    def do_GET(self) -> None:
        """Give an object, a range of it, or a list."""
        name, query = self._asked()
        if "/" not in name:
            self.send(200, self._listed(name, query))
            return
        data = self.server.objects.get(name)
        if data is None:
            self.send(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        start, end = int(first), int(last) + 1 if last else len(data)
        self.send(206 if "Range" in self.headers else 200, data[start:end])

    def do_PUT(self) -> None:
        """Take an object, or a part of one; buckets and folders are made by their first object."""
        name, query = self._asked()
        data = self.body()
        if "partNumber" in query:
            self.server.parts[name][int(query["partNumber"])] = data
        elif "/" in name and not self.path.partition("?")[0].endswith("/"):
            self.server.objects[name] = data
        self.send(200, b"", ETag='"0"')

    def do_POST(self) -> None:
        """Begin or complete an upload in parts, or delete several objects."""
        name, query = self._asked()
        self.body()
        if "uploads" in query:
            answer = f"<Key>{escape(name.partition('/')[2])}</Key><UploadId>1</UploadId>"
            self.send(
                200, f"<InitiateMultipartUploadResult>{answer}</InitiateMultipartUploadResult>".encode()
            )
            return
        parts = self.server.parts.pop(name, {})
        self.server.objects[name] = b"".join(parts[number] for number in sorted(parts))
        answer = "<CompleteMultipartUploadResult><ETag>0</ETag></CompleteMultipartUploadResult>"
        self.send(200, answer.encode())

    def do_DELETE(self) -> None:
        """Remove an object."""
        self.server.objects.pop(self._asked()[0], None)
        self.send(204, b"")

    def body(self) -> bytes:
        """Read the body; one in chunks of HTTP, of Amazon, or of one within the other, is put together."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = _unchunked(self.rfile)
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        amazon = "aws-chunked" in self.headers.get("Content-Encoding", "")
        return _unchunked(io.BytesIO(data)) if amazon else data

    def _listed(self, bucket: str, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        contents, folders = [], set()
        for name in sorted(self.server.objects):
            key = name.removeprefix(f"{bucket}/")
            if key == name or not key.startswith(prefix):
                continue
            rest = key.removeprefix(prefix)
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                size = len(self.server.objects[name])
                contents.append(
                    f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size>"
                    "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
                )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(folders)
        )
        return (
            f"<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(contents) + len(folders)}</KeyCount><IsTruncated>false</IsTruncated>"
            f"{''.join(contents)}{common}</ListBucketResult>"
        ).encode()

    def send(self, status: int, data: bytes, **headers: str) -> None:
        """Send an answer; a fault may replace this for one request."""
        if self.server.refusal and self.command != "HEAD":
            message = escape(self.server.refusal)
            status, data = (
                403,
                f"<Error><Code>AccessDenied</Code><Message>{message}</Message></Error>".encode(),
            )
        self.send_response(status)
        stated = {"Content-Length": str(len(data)), "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
        for name, value in {**stated, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _unchunked(file: io.BufferedIOBase) -> bytes:
    data = b""
    while size := int(file.readline().partition(b";")[0], 16):
        data += file.read(size)
        file.readline()
    while file.readline().strip():  # The trailer has a checksum.
        pass
    return data


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run the server in a thread."""
    server = ObjectStore()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
