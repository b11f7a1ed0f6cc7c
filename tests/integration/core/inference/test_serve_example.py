"""The example that serves models over HTTP: probes, good and bad requests of several clients, and its end."""

import http.client
import io
import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image
from support.processes import ROOT, free_ports, run_command, wait_until
from support.trainings.trained import write_weights

from paddlevit_dist import Predictor

SERVE = [sys.executable, str(ROOT / "examples" / "serve.py")]
CLIENTS, REQUESTS = 8, 4


def ask(port, method, path, content=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        connection.request(method, path, content, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def ask_until_answered(port):
    try:
        return ask(port, "GET", "/health")
    except ConnectionError:
        return None


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_weights(tmp_path_factory.mktemp("weights"), ["cat", "ant", "bee"])


def draw_png(seed):
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (24, 20, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


def is_same(answer, rows) -> bool:
    """Whether rows agree; scores of calls beside other threads may differ in their last digits."""
    pairs = zip(json.loads(answer), rows, strict=True)
    return all(
        found.keys() == row.keys() and all(found[key] == pytest.approx(value, abs=1e-5) for key, value in row.items())
        for found, row in pairs
    )


def test_clients_get_rows_and_reasons_until_the_server_is_stopped(weights, tmp_path):
    (port,) = free_ports(1)
    server = subprocess.Popen([*SERVE, str(port), str(weights)], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: ask_until_answered(port), "it does not answer", process=server)
        assert ask(port, "GET", "/ready")[0] in (200, 503)
        wait_until(lambda: ask(port, "GET", "/ready")[0] == 200, "it is not ready", process=server)
        predictor, images = Predictor(weights), [draw_png(seed) for seed in range(CLIENTS)]

        def use(client):
            for _ in range(REQUESTS):
                code, answer = ask(port, "POST", "/weights.pdparams", images[client])
                assert code == 200 and is_same(answer, predictor(images[client]))
                for bad in (b"", b"text", images[client][:60]):
                    code, answer = ask(port, "POST", "/weights.pdparams", bad)
                    (name, reason), *others = json.loads(answer).items()
                    assert (code, name, others) == (400, "error", []) and reason and "\n" not in reason
            return True

        with ThreadPoolExecutor(CLIENTS) as pool:
            assert list(pool.map(use, range(CLIENTS))) == [True] * CLIENTS
        assert json.loads(ask(port, "GET", "/")[1]) == {"weights.pdparams": ["cat", "ant", "bee"]}
        code, answer = ask(port, "POST", "/weights.pdparams/probabilities", images[0])
        shares = np.load(io.BytesIO(answer))
        assert code == 200 and predictor.class_names[shares.argmax()] == predictor(images[0])[0]["class"]
        refused = {
            404: [("POST", "/other", b"a"), ("GET", "/other"), ("POST", "/weights.pdparams/masks", images[0])],
            413: [("POST", "/weights.pdparams", bytes((20 << 20) + 1)), ("POST", "/weights.pdparams", None)],
            411: [("POST", "/weights.pdparams", iter([b"in parts"]))],
        }
        for expected, requests in refused.items():
            for request in requests:
                length = {"Content-Length": str(1 << 30)} if request[2:] == (None,) else {}
                code, answer = ask(port, *request, **length)
                assert code == expected and list(json.loads(answer)) == ["error"]
        begun = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        begun.putrequest("POST", "/weights.pdparams")
        begun.putheader("Content-Length", str(len(images[0])))
        begun.endheaders(images[0][:9])
        assert ask(port, "GET", "/health")[0] == 200  # so it has accepted the other one before
        server.send_signal(signal.SIGTERM)
        wait_until(lambda: ask_until_answered(port) is None, "it still answers", process=server)
        begun.send(images[0][9:])
        assert is_same(begun.getresponse().read(), predictor(images[0]))
        begun.close()
        logged = server.communicate(timeout=60)[1]
        assert server.returncode == 0 and "Traceback" not in logged
        assert logged.count("POST") == CLIENTS * REQUESTS * 4 + 7 and "GET /ready" not in logged
    finally:
        server.kill()


@pytest.mark.parametrize("is_twice", [True, False])
def test_models_that_cannot_be_served_are_told_in_one_line(weights, tmp_path, is_twice):
    (port,) = free_ports(1)
    done = run_command([*SERVE, str(port), *([str(weights)] * 2 if is_twice else ["gone.onnx"])], folder=tmp_path)
    expected = "another model is named weights.pdparams, too: rename one of them" if is_twice else "gone.onnx does not"
    assert done.code == 1 and expected in done.err.splitlines()[-1] and "Traceback" not in done.err
