"""Command: serve a directory as the bucket of an S3 store far away. Prints its port; ends with its standard input.

Every request takes a fixed time, and each connection has a fixed bandwidth. Reads only, and nothing is signed:
what is measured is the reader.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import Counter
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

COUNTS = "/__requests__"
_CHUNK = 256 << 10
_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"
_ENTRY = "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>{}</Size></Contents>"
_PREFIX = "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>"


class LatencyServer:
    """Answers requests for the files of a directory.

    Args:
        root: The directory; its own directories are buckets.
        seconds: Each request takes at least so long.
        bytes_per_second: Of each connection.
    """

    def __init__(self, root: Path, seconds: float, bytes_per_second: float) -> None:
        self._root = root
        self._seconds = seconds
        self._bytes_per_second = bytes_per_second
        self._counts: Counter[str] = Counter()
        self._in_flight = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                request, *lines = head.decode("latin-1").split("\r\n")
                method, target, _ = request.split(" ", 2)
                headers = {name.strip().lower(): value.strip() for name, _, value in (s.partition(":") for s in lines)}
                await self._answer(writer, method, target, headers)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, method: str, target: str, headers: dict[str, str]) -> None:
        parts = urlsplit(target)
        if parts.path == COUNTS:
            body = json.dumps(self._counts).encode()
            self._counts = Counter()
            writer.write(_head("200 OK", len(body)) + body)
            return
        self._counts[method] += 1
        self._in_flight += 1
        self._counts["most in flight"] = max(self._counts["most in flight"], self._in_flight)
        try:
            await asyncio.sleep(self._seconds)
            path = self._root / unquote(parts.path).strip("/")
            if "list-type" in parts.query:
                body = self._listing(path, parse_qs(parts.query))
                writer.write(_head("200 OK", len(body), "Content-Type: application/xml\r\n") + body)
            elif not path.is_file():
                writer.write(_head("404 Not Found", 0))
            else:
                await self._send(writer, method, path, path.stat().st_size, headers.get("range"))
            await writer.drain()
        finally:
            self._in_flight -= 1

    async def _send(self, writer: asyncio.StreamWriter, method: str, path: Path, size: int, span: str | None) -> None:
        start, end = _span(span, size)
        more = f'ETag: "{size}"\r\nLast-Modified: {_DATE}\r\nAccept-Ranges: bytes\r\n'
        if span is not None:
            more += f"Content-Range: bytes {start}-{end - 1}/{size}\r\n"
        writer.write(_head("200 OK" if span is None else "206 Partial Content", end - start, more))
        if method == "HEAD":
            return
        loop = asyncio.get_running_loop()
        due = loop.time()
        with path.open("rb") as file:
            file.seek(start)
            while start < end:
                chunk = file.read(min(_CHUNK, end - start))
                start += len(chunk)
                due += len(chunk) / self._bytes_per_second
                writer.write(chunk)
                await writer.drain()
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())

    def _listing(self, bucket: Path, query: dict[str, list[str]]) -> bytes:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        entries: list[str] = []
        if delimiter:
            folder, _, begin = prefix.rpartition("/")
            folder = f"{folder}/" if folder else ""
            for path in sorted((bucket / folder).glob("*")):
                if path.name.startswith(begin) and path.is_file():
                    entries.append(_ENTRY.format(escape(folder + path.name), path.stat().st_size))
                elif path.name.startswith(begin):
                    entries.append(_PREFIX.format(escape(f"{folder}{path.name}/")))
        else:
            limit = int(query.get("max-keys", ["1000"])[0])
            files = (each for each in bucket.rglob("*") if each.is_file())
            named = ((str(each.relative_to(bucket)), each) for each in files)
            fitting = [(name, each) for name, each in named if name.startswith(prefix)]
            entries = [_ENTRY.format(escape(name), each.stat().st_size) for name, each in sorted(fitting)[:limit]]
        count = f"<KeyCount>{len(entries)}</KeyCount><IsTruncated>false</IsTruncated>"
        return f"<ListBucketResult>{count}{''.join(entries)}</ListBucketResult>".encode()


def _head(status: str, length: int, more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{more}\r\n".encode()


def _span(header: str | None, size: int) -> tuple[int, int]:
    if header is None:
        return 0, size
    first, _, last = header.removeprefix("bytes=").partition("-")
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1 if last else size)


async def _main(root: str, milliseconds: str, megabytes_per_second: str) -> None:
    far = LatencyServer(Path(root), float(milliseconds) / 1000, float(megabytes_per_second) * 1e6)
    server = await asyncio.start_server(far.serve, "127.0.0.1", 0, limit=1 << 20)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ended.set)), daemon=True).start()
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
