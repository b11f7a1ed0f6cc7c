"""The example that serves models over HTTP, under twenty clients at once; it prints latencies and memory."""

import http.client
import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.processes import ROOT, free_ports, run_command, succeeded
from support.trainings import trained

from paddlevit_dist import Predictor

PACKAGES = "paddle2onnx", "onnx", "onnxruntime"
MISSING = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
CLIENTS, REQUESTS, ALONE = 20, 10, 20  # requests of each client, and then of one alone, one after the other
ANSWERS = CLIENTS * REQUESTS + ALONE
NETWORK = "MODEL.EMBED_DIM 192 MODEL.DEPTH 12 MODEL.NUM_HEADS 3 MODEL.PATCH_SIZE 16 DATA.IMAGE_SIZE 224".split()


@pytest.mark.skipif(bool(MISSING), reason=f"pip install {' '.join(MISSING)}")
def test_a_run_and_an_exported_file_answer_twenty_clients_as_they_answer_one(tmp_path, monkeypatch):
    monkeypatch.setattr(trained, "SIZES", {"patch_size": 16, "embed_dim": 192, "depth": 12, "num_heads": 3})  # ViT-Ti
    weights = trained.write_weights(tmp_path / "run", ["cat", "ant", "bee"], *NETWORK, image_size=224)
    module = [sys.executable, "-m", "paddlevit_dist"]
    succeeded(run_command([*module, "export", str(weights), str(tmp_path / "net"), "-format=onnx"], timeout=600))
    (port,) = free_ports(1)
    sources = [str(weights), str(tmp_path / "net.onnx")]
    command = [sys.executable, str(ROOT / "examples" / "serve.py"), str(port), *sources]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path)
    try:
        for line in server.stdout:
            if line.startswith("ready: "):
                break
        names = [Path(source).name for source in sources]
        assert json.loads(ask(port, "GET", "/")[1]) == {name: ["cat", "ant", "bee"] for name in names}
        images = [draw_jpeg(seed) for seed in range(CLIENTS)]
        predict = Predictor(weights)
        expected = [predict(image) for image in images]
        for name in names:
            before = read_seconds(server.pid)
            require_equal_answers(port, name, images, expected)
            print(f"{name}: {1e3 * (read_seconds(server.pid) - before) / ANSWERS:.0f} ms of processor time an image")
            require_refusals(port, name)
        assert ask(port, "POST", "/other", images[0])[0] == 404
        status = Path(f"/proc/{server.pid}/status").read_text()
        kibibytes = int(re.search(r"VmHWM:\s+(\d+)", status)[1])
        print(f"memory: at most {kibibytes / 1024:.0f} MiB, with both models")
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


def read_seconds(process: int) -> float:
    """Read the processor time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def draw_jpeg(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (15, 20, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize((640, 480)).save(file, "JPEG")
    return file.getvalue()


def ask(port: int, method: str, path: str, content: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request(method, path, content)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def require_equal_answers(port: int, name: str, images: list[bytes], expected: list) -> None:
    """Each client asks for an image of its own, and gets its rows; every second also sends damaged ones between."""
    together = threading.Barrier(CLIENTS)

    def client(index):
        together.wait()
        answers = [time_answer(port, name, images[index], index % 2) for _ in range(REQUESTS)]
        for code, answer, _ in answers:
            assert code == 200 and is_equal(json.loads(answer), expected[index])
        return [seconds for *_, seconds in answers]

    with ThreadPoolExecutor(CLIENTS) as pool:
        of_all = 1e3 * np.percentile([each for taken in pool.map(client, range(CLIENTS)) for each in taken], [50, 99])
    of_one = 1e3 * np.percentile([time_answer(port, name, images[0])[2] for _ in range(ALONE)], [50, 99])
    print(f"{name}: one client: p50 {of_one[0]:.0f} ms, p99 {of_one[1]:.0f} ms")
    print(f"{name}: {CLIENTS} clients: p50 {of_all[0]:.0f} ms, p99 {of_all[1]:.0f} ms")


def time_answer(port: int, name: str, image: bytes, is_damaged: bool = False) -> tuple[int, bytes, float]:
    """Return code, answer and seconds of a request, after one with a damaged image if asked."""
    if is_damaged:
        assert ask(port, "POST", f"/{name}", image[:200])[0] == 400
    began = time.perf_counter()
    return *ask(port, "POST", f"/{name}", image), time.perf_counter() - began


def is_equal(found: list, expected: list) -> bool:
    return [list(row) for row in found] == [list(row) for row in expected] and all(
        row[key] == (pytest.approx(value, abs=2e-5) if isinstance(value, float) else value)
        for row, other in zip(found, expected)
        for key, value in other.items()
    )


def require_refusals(port: int, name: str) -> None:
    for content in (b"", b"text"):
        code, answer = ask(port, "POST", f"/{name}", content)
        assert code == 400 and "could not be read" in json.loads(answer)["error"]
    assert ask(port, "POST", f"/{name}", bytes((20 << 20) + 1))[0] == 413
