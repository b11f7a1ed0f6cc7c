"""Weights from a URL, served by a local test server."""

from __future__ import annotations

import hashlib
import http.server
import threading

import numpy as np
import pytest

from paddlevit_dist.checkpoint import download
from paddlevit_dist.checkpoint.load import load_weights
from paddlevit_dist.checkpoint.safetensors_files import write_safetensors
from paddlevit_dist.checkpoint.weights import read_weights
from paddlevit_dist.errors import UserError
from paddlevit_dist.models import create_model


class Server:
    """Serves ``content`` at every address except /missing; ``cut`` announces more than it sends."""

    def __init__(self, content):
        self.content, self.requests, self.cut = content, [], False
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802
                outer.requests.append(self.path)
                if self.path.startswith("/missing"):
                    return self.send_error(404)
                self.send_response(200)
                self.send_header("Content-Length", str(len(outer.content)))
                self.end_headers()
                self.wfile.write(outer.content[: len(outer.content) // 2] if outer.cut else outer.content)

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def address(self, path):
        return f"http://127.0.0.1:{self.server.server_port}/{path}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def weights(tmp_path):
    write_safetensors(tmp_path / "w.safetensors", {"a": np.arange(6.0)})
    return tmp_path / "w.safetensors"


@pytest.fixture
def server(weights, tmp_path, monkeypatch):
    monkeypatch.setenv(download.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server(weights.read_bytes())
    yield server
    server.close()


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_address_is_fetched_once_and_its_checksum_compared_each_time(server, weights):
    address = f"{server.address('zoo/vit.safetensors?x=1')}#sha256={digest(weights)}"
    for _ in range(2):
        found = read_weights(address)
        np.testing.assert_array_equal(found.state["a"], np.arange(6.0))
        assert found.notices == ()
    assert server.requests == ["/zoo/vit.safetensors?x=1"]
    read_weights(server.address("zoo/vit.safetensors?x=1"), sha256=digest(weights).upper())
    assert len(server.requests) == 1


def test_a_copy_that_was_spoilt_on_the_disk_is_fetched_again(server, weights, tmp_path):
    address = f"{server.address('w.safetensors')}#sha256={digest(weights)}"
    read_weights(address)
    (copy,) = (tmp_path / "cache").rglob("*.safetensors")
    copy.write_bytes(copy.read_bytes()[:-1] + b"x")
    np.testing.assert_array_equal(read_weights(address).state["a"], np.arange(6.0))
    assert len(server.requests) == 2


def test_without_a_checksum_the_notice_tells_it(server, weights):
    (notice,) = read_weights(server.address("w.safetensors")).notices
    assert digest(weights) in notice


def test_another_content_is_refused_and_not_kept(server, tmp_path):
    with pytest.raises(UserError, match="its SHA-256 is .*, expected 0000.*not the file that was meant"):
        read_weights(f"{server.address('w.safetensors')}#sha256={'0' * 64}")
    assert not [*(tmp_path / "cache").rglob("*.safetensors*")]


def test_an_answer_that_ends_early_is_refused_and_not_kept(server, tmp_path):
    server.cut = True
    with pytest.raises(UserError, match="arrived; try again|the connection broke"):
        read_weights(server.address("w.safetensors"))
    assert not [*(tmp_path / "cache").rglob("*.safetensors*")]
    server.cut = False
    np.testing.assert_array_equal(read_weights(server.address("w.safetensors")).state["a"], np.arange(6.0))


def test_errors_of_the_server_and_of_the_address_are_one_line(server):
    with pytest.raises(UserError, match="missing.pth cannot be fetched: the server answers 404 Not Found"):
        read_weights(server.address("missing.pth"))
    with pytest.raises(UserError, match="expected #sha256= and 64"):
        read_weights(server.address("w.safetensors#md5=1"))
    with pytest.raises(UserError, match="sha256 'abc' is not a SHA-256"):
        read_weights(server.address("w.safetensors#sha256=abc"))
    with pytest.raises(UserError, match="cannot be fetched"):
        read_weights("http://127.0.0.1:1/w.safetensors")
    with pytest.raises(UserError, match="cannot be fetched"):
        read_weights("http://[/w.safetensors")


def test_a_file_address_is_read_where_it_is(weights, tmp_path):
    address = f"file://{weights}"
    np.testing.assert_array_equal(read_weights(f"{address}#sha256={digest(weights)}").state["a"], np.arange(6.0))
    with pytest.raises(UserError, match="its SHA-256 is"):
        read_weights(address, sha256="1" * 64)
    with pytest.raises(UserError, match="there is no file"):
        read_weights(f"file://{tmp_path}/absent.safetensors")


def test_processes_that_want_the_same_address_fetch_it_once(server, weights):
    address = f"{server.address('w.safetensors')}#sha256={digest(weights)}"
    threads = [threading.Thread(target=read_weights, args=(address,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.requests) == 1


def test_a_checksum_of_a_path_is_refused_rather_than_ignored(weights):
    with pytest.raises(UserError, match="sha256 was given for"):
        read_weights(weights, sha256="1" * 64)


def test_a_model_loads_from_an_address(server, tmp_path):
    small = {"image_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 1, "num_heads": 4, "num_classes": 3}
    source, model = create_model("vit", **small), create_model("vit", **small)
    state = {name: value.numpy() for name, value in source.state_dict().items()}
    write_safetensors(tmp_path / "vit.safetensors", state, {"format": "pd"})
    server.content = (tmp_path / "vit.safetensors").read_bytes()
    report = load_weights(model, server.address("vit.safetensors"), strict=True)
    np.testing.assert_array_equal(model.head.weight.numpy(), source.head.weight.numpy())
    assert any("SHA-256" in notice for notice in report.notices) and "SHA-256" in report.summary()
