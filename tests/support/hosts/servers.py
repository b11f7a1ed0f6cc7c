"""A web server of this machine, for tests of what is fetched; ``range_server`` has one of a folder."""

import hashlib
import http.server
import threading
from collections.abc import Callable
from typing import Any


class LocalServer:
    """Answers requests to a port of this machine in threads; a context that ends it."""

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        class QuietServer(http.server.ThreadingHTTPServer):
            request_queue_size, daemon_threads = 128, True

            def handle_error(self, *arguments: Any) -> None:  # a client that gave up
                pass

        handler.log_message = lambda self, *arguments: None
        self.server = QuietServer(("127.0.0.1", 0), handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.002,), daemon=True)
        self.thread.start()

    def address(self, path: str = "") -> str:
        return f"http://127.0.0.1:{self.server.server_port}/{path}"

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Server(LocalServer):
    """Serves ``content`` at every address except /missing, and opens no tunnel.

    Attributes:
        requests: the paths that were asked for, those of tunnels after "CONNECT ".
        heads: the paths whose heads alone were asked for.
        cut: half of the content that is announced is sent.
        answer: replaces the whole answer; it is called with the request's handler.
    """

    def __init__(self, content: bytes = b"") -> None:
        self.content, self.cut = content, False
        self.requests: list[str] = []
        self.heads: set[str] = set()
        self.answer: Callable[[Any], Any] | None = None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # noqa: N802
                outer.requests.append(self.path)
                if outer.answer is not None:
                    outer.answer(self)
                elif self.path.startswith("/missing"):
                    self.send_error(404)
                else:
                    send(self, outer.content, outer.content[: len(outer.content) // 2] if outer.cut else outer.content)

            def do_HEAD(self) -> None:  # noqa: N802
                outer.heads.add(self.path)
                if outer.answer is not None:
                    outer.answer(self)
                else:
                    self.send_error(404)

            def do_CONNECT(self) -> None:  # noqa: N802
                outer.requests.append(f"CONNECT {self.path}")
                self.send_error(403)

        super().__init__(Handler)


def send(handler: Any, announced: bytes | None, sent: bytes) -> None:
    """Answer with 200, the length of ``announced`` if it is not None, and ``sent``."""
    handler.send_response(200)
    if announced is not None:
        handler.send_header("Content-Length", str(len(announced)))
    handler.end_headers()
    handler.wfile.write(sent)


def answer_as_hub(content: bytes) -> Callable[[Any], None]:
    """For ``Server.answer``: Hugging Face's protocol, of one file at every address."""

    def answer(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.send_header("X-Repo-Commit", "0123456789" * 4)
        handler.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(content)

    return answer
