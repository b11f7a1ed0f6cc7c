"""Serve runs and exported files over HTTP: python examples/serve.py 8000 output/digits exported/digits.onnx.

A model is named by the last part of its path. Send it the bytes of an image to get its rows, or an array of a row:

    curl --data-binary @cat.jpg http://127.0.0.1:8000/digits.onnx
    curl --data-binary @cat.jpg http://127.0.0.1:8000/digits.onnx/probabilities -o probabilities.npy

GET / lists the models, /health says that the server runs, and /ready that all models are open and have predicted.
0.0.0.0:8000 in place of 8000 also answers other machines. SIGTERM ends it after the requests in progress.
"""

import io
import json
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from paddlevit_dist import Predictor, UserError

LARGEST = 20 << 20  # bytes of an image
SECONDS = 30  # that a client may take to send a part of it


class Server(ThreadingHTTPServer):
    """Answers each request in a thread: threads decode several images while the network computes."""

    daemon_threads = False  # closing it waits for them
    request_queue_size = 128  # clients that wait for a thread

    def __init__(self, address):
        super().__init__(address, Handler)
        self.models, self.is_ready = {}, False

    def open_models(self, sources):
        for source in sources:
            name = Path(source).absolute().name
            if name in self.models:
                raise UserError(f"{source}: another model is named {name}, too: rename one of them")
            self.models[name] = Predictor(source)  # it predicts a gray image
        self.is_ready = True

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):  # the client has left, or stalls
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    timeout = SECONDS

    def do_GET(self):
        answers = {
            "/": (200, {name: predictor.class_names for name, predictor in list(self.server.models.items())}),
            "/health": (200, {"status": "running"}),
            "/ready": (200, {"status": "ready"}) if self.server.is_ready else (503, {"status": "opening the models"}),
        }
        self.answer(*answers.get(self.path, (404, {"error": f"no page {self.path}"})))

    def do_POST(self):
        _, name, *arrays = self.path.split("/")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST:
            self.answer(413 if length else 411, {"error": f"expected a Content-Length of at most {LARGEST:,} bytes"})
            for _ in range(LARGEST >> 16):  # a client that was cut off while it sends would miss the answer
                if not self.rfile.read(1 << 16):
                    return
            return
        content = self.rfile.read(int(length))
        if name not in self.server.models:
            self.answer(404, {"error": f"no model {name}: there are {', '.join(self.server.models)}"})
            return
        try:
            rows = self.server.models[name](content)
        except UserError as error:  # not an image, or damaged
            self.answer(400, {"error": str(error)})
            return
        except Exception:
            self.answer(500, {"error": "the model failed: the log of the server says why"})
            raise
        made, array = rows[0].arrays if arrays else {}, "/".join(arrays)
        if arrays and array not in made:
            self.answer(404, {"error": f"no array {array}: there are {', '.join(made) or 'none'}"})
        else:
            self.answer(200, made[array] if arrays else rows)

    def answer(self, code, content):
        is_array = isinstance(content, np.ndarray)
        body = io.BytesIO()
        if is_array:
            np.save(body, content)
        else:
            body.write(json.dumps(content).encode())
        self.send_response(code)
        self.send_header("Content-Type", "application/octet-stream" if is_array else "application/json")
        self.send_header("Content-Length", str(body.tell()))
        self.end_headers()
        self.wfile.write(body.getvalue())

    def log_request(self, code="-", size="-"):
        if self.command == "POST":  # not the probes
            super().log_request(code, size)


def main(address, *sources):
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    host, _, port = address.rpartition(":")
    with Server((host or "127.0.0.1", int(port))) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            server.open_models(sources)
            print(f"ready: {', '.join(server.models)}", flush=True)
            while not stop.wait(1.0):
                pass  # a signal that another thread got wakes no wait without a limit
        except UserError as error:
            sys.exit(f"error: {error}")
        finally:
            server.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
