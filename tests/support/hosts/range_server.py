"""A web server of a folder, with byte ranges, tags and listings, that can fail as servers do."""

import hashlib
import html
import http.server
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from support.hosts.servers import LocalServer


class RangeServer(LocalServer):
    """Serves the files of ``folder``.

    Attributes:
        requests: method and path -> how often it was asked for.
        has_listings: a folder is answered with links to its files, else with 404.
        has_ranges: a range is answered as such, else with the whole file.
        cuts: answers to ranges that are cut after half of their bytes, before others are whole.
        errors: answers 503 to ranges, before others are whole.
        refusals: answers to any requests with the status ``refusal``, before others are answered.
        refused_methods: methods that are answered with 405.
        alter: changes code, headers and body of an answer to a range; None: nothing.
        pause_seconds: before each answer to a range.
        is_pausing: set once an answer has waited, or waits, for a second or longer.
        marks, part_marks: headers about the version of a file, of ETag and Last-Modified, with whole files and parts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: Counter[str] = Counter()
        self.has_listings = self.has_ranges = True
        self.cuts = self.errors = self.refusals = 0
        self.refusal, self.refused_methods = 503, ()
        self.alter: Callable[[int, dict[str, str], bytes], tuple[int, dict[str, str], bytes]] | None = None
        self.pause_seconds, self.is_pausing = 0.0, threading.Event()
        self.marks = self.part_marks = ("ETag",)
        self._lock = threading.Lock()
        self._tags: dict[tuple[Path, int], str] = {}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:  # noqa: N802
                outer._answer(self, has_body=True)

            def do_HEAD(self) -> None:  # noqa: N802
                outer._answer(self, has_body=False)

        super().__init__(Handler)

    def _take(self, name: str) -> bool:
        with self._lock:
            left = getattr(self, name)
            setattr(self, name, max(0, left - 1))
            return left > 0

    def _answer(self, request: Any, has_body: bool) -> None:
        with self._lock:
            self.requests[f"{request.command} {request.path}"] += 1
        if request.command in self.refused_methods:
            return self._send(request, 405, b"", {}, has_body)
        if self._take("refusals"):
            return self._send(request, self.refusal, b"", {"Retry-After": "0"}, has_body)
        path = self.folder / unquote(request.path.partition("?")[0]).lstrip("/")
        if path.is_dir() and self.has_listings:
            names = sorted(entry.name + "/" * entry.is_dir() for entry in path.iterdir())
            links = "".join(f'<a href="{quote(name)}">{html.escape(name)}</a>\n' for name in names)
            return self._send(request, 200, links.encode(), {"Content-Type": "text/html"}, has_body)
        if not path.is_file():
            return self._send(request, 404, b"", {}, has_body)
        status = path.stat()
        asked = request.headers.get("Range")
        found = {
            "ETag": self._tag(path, status.st_mtime_ns),
            "Last-Modified": request.date_time_string(int(status.st_mtime)),
        }
        marks = self.marks if asked is None else self.part_marks
        headers = {"Content-Type": "application/octet-stream", **{name: found[name] for name in marks}}
        if asked is None or not self.has_ranges:
            return self._send(request, 200, path.read_bytes(), headers, has_body)
        if self.pause_seconds >= 1.0:
            self.is_pausing.set()
        time.sleep(self.pause_seconds)
        if self._take("errors"):
            return self._send(request, 503, b"", {}, has_body)
        first, last = map(int, asked.removeprefix("bytes=").split("-"))
        headers["Content-Range"] = f"bytes {first}-{min(last, status.st_size - 1)}/{status.st_size}"
        with path.open("rb") as file:
            file.seek(first)
            answer = 206, headers, file.read(last + 1 - first)
        code, headers, body = answer if self.alter is None else self.alter(*answer)
        return self._send(request, code, body, headers, has_body)

    def _tag(self, path: Path, changed_ns: int) -> str:
        if (path, changed_ns) not in self._tags:
            self._tags[path, changed_ns] = f'"{hashlib.md5(path.read_bytes()).hexdigest()}"'
        return self._tags[path, changed_ns]

    def _send(self, request: Any, code: int, body: bytes, headers: dict[str, str], has_body: bool) -> None:
        request.send_response(code)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if not has_body:
            return
        if code == 206 and self._take("cuts"):
            request.wfile.write(body[: len(body) // 2])
            request.close_connection = True
        else:
            request.wfile.write(body)
