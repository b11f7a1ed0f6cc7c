"""Weights from an encrypted address, of a server with a certificate that openssl makes."""

import ssl
import subprocess

import numpy as np
import pytest
from support.hosts.servers import Server

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint import download
from paddlevit_dist.core.checkpoint.array_files import write_safetensors
from paddlevit_dist.core.checkpoint.weights import read_weights


@pytest.fixture
def weights(tmp_path):
    write_safetensors(tmp_path / "w.safetensors", {"a": np.arange(6.0)})
    return tmp_path / "w.safetensors"


@pytest.fixture
def server(weights, tmp_path, monkeypatch):
    monkeypatch.setenv(download.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server(weights.read_bytes()) as server:
        yield server


def test_an_encrypted_address_never_leads_to_an_open_one(server, weights, tmp_path, monkeypatch):
    key = tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(tmp_path / "certificate.pem")]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem", key)
    server.server.socket = context.wrap_socket(server.server.socket, server_side=True)
    address = f"https://localhost:{server.server.server_port}/w.safetensors"
    np.testing.assert_array_equal(read_weights(address).state["a"], np.arange(6.0))
    server.answer = lambda handler: handler.wfile.write(
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/w.safetensors\r\n\r\n"
    )
    with pytest.raises(UserError, match="it redirects from https:// to http://, which is not followed"):
        read_weights(address.replace("/w.", "/moved."))
