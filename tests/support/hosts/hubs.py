"""A local server in Hugging Face's place, with one file of weights."""

import hashlib

import huggingface_hub.constants
import numpy as np
import pytest

from paddlevit_dist.core.checkpoint.array_files import write_safetensors
from paddlevit_dist.core.checkpoint.published import _fetch_once
from support.hosts.servers import Server

NAME = "vit_tiny_patch16_224.augreg_in21k_ft_in1k"


PATH = f"/timm/{NAME}/resolve/main/model.safetensors"


@pytest.fixture
def weights(tmp_path):
    values = np.arange(50_000, dtype=np.float64)
    write_safetensors(tmp_path / "w.safetensors", {"a": values})
    return tmp_path / "w.safetensors"


@pytest.fixture
def hub(weights, tmp_path, monkeypatch):
    """A server of one file that speaks the hub's protocol, and of what a test puts into ``beside``: path -> content;
    ``refusal`` is the status and error code of its answers, ``digest`` names a content."""
    server = Server(weights.read_bytes())
    server.refusal = server.end = server.token = None
    server.beside, server.digest = {}, lambda content: hashlib.sha256(content).hexdigest()

    def answer(handler):
        server.token = handler.headers.get("Authorization")
        content = server.content if handler.path.endswith(PATH) else server.beside.get(handler.path)
        if server.refusal is not None or content is None:
            status, code = server.refusal or (404, "EntryNotFound")
            handler.send_response(status)
            handler.send_header("X-Error-Code", code)
            handler.send_header("Content-Length", "0")
            return handler.end_headers()
        start = int((handler.headers.get("Range") or "bytes=0-")[len("bytes=") :].partition("-")[0])
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(content) - start))
        handler.send_header("X-Repo-Commit", "0123456789" * 4)
        handler.send_header("ETag", f'"{server.digest(content)}"')
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(content[start : server.end])
            server.end = None

    def set_constant(name, value):
        monkeypatch.setattr(huggingface_hub.constants, name, value)

    server.answer, server.set_constant = answer, set_constant
    home = tmp_path / "of_hugging_face"
    for name, value in {"HF_HUB_CACHE": str(home / "hub"), "HF_TOKEN_PATH": str(home / "token")}.items():
        set_constant(name, value)
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setenv("HF_ENDPOINT", server.address(""))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    _fetch_once.cache_clear()
    with server:
        yield server
    _fetch_once.cache_clear()
