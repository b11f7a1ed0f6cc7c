"""Weights from a URL, served by a local test server."""

import base64
import hashlib
import logging

import numpy as np
import pytest
from support.hosts.servers import Server
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint import download
from paddlevit_dist.core.checkpoint.array_files import write_safetensors
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.checkpoint.weights import read_weights
from paddlevit_dist.core.tasks.model_factory import create_model


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


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_address_is_fetched_once_and_its_checksum_compared_each_time(server, weights):
    address = f"{server.address('zoo/vit.safetensors?x=1')}#sha256={digest(weights)}"
    for _ in range(2):
        found = read_weights(address)
        np.testing.assert_array_equal(found.state["a"], np.arange(6.0))
        assert found.notices == ()
    assert server.requests == ["/zoo/vit.safetensors?x=1"]
    read_weights(f"{server.address('zoo/vit.safetensors?x=1')}#sha256={digest(weights).upper()}")
    assert len(server.requests) == 1


def test_another_content_is_refused_and_not_kept(server, tmp_path):
    with pytest.raises(UserError, match="its SHA-256 is .*, expected 0000.*it is another file"):
        read_weights(f"{server.address('w.safetensors')}#sha256={'0' * 64}")
    assert not [*(tmp_path / "cache").rglob("*.safetensors*")]


def test_copies_have_a_folder_for_each_address_and_the_end_of_its_name(monkeypatch, tmp_path):
    monkeypatch.setenv(download.CACHE_VARIABLE, str(tmp_path))
    address = f"http://a/b/{'x' * 60}%20{'y' * 60}.pdparams?c"
    path = download.find_local_copy(address)
    assert path is None
    folder = tmp_path / "weights" / hashlib.sha256(address.encode()).hexdigest()[:16]
    folder.mkdir(parents=True)
    name = f"{'x' * 30}_{'y' * 60}.pdparams"
    (folder / name[-100:]).touch()
    assert download.find_local_copy(address) == folder / name and len(name) == 100


def test_other_libraries_do_not_log_requests():
    loggers = [logging.getLogger(library) for library in ("huggingface_hub", "httpx", "httpx2")]
    for logger in loggers:
        logger.setLevel(logging.INFO)
    with download.in_one_line("http://a"):
        assert [logger.level for logger in loggers] == [logging.ERROR] * 3


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


def test_an_answer_without_the_content_is_refused(server):
    server.answer = lambda handler: handler.wfile.write(b"HTTP/1.1 203 Changed\r\nContent-Length: 2\r\n\r\nab")
    with pytest.raises(UserError, match="cannot be fetched: the server answers 203 instead of 200"):
        read_weights(server.address("w.safetensors"))


def test_a_file_address_is_read_where_it_is(weights, tmp_path):
    address = f"file://{weights}"
    np.testing.assert_array_equal(read_weights(f"{address}#sha256={digest(weights)}").state["a"], np.arange(6.0))
    with pytest.raises(UserError, match="its SHA-256 is"):
        read_weights(f"{address}#sha256={'1' * 64}")
    with pytest.raises(UserError, match="there is no file"):
        read_weights(f"file://{tmp_path}/absent.safetensors")


def test_a_model_loads_from_an_address(server, tmp_path):
    small = {"image_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 1, "num_heads": 4, "num_classes": 3}
    source, model = create_model("vit", **small), create_model("vit", **small)
    state = {name: value.numpy() for name, value in source.state_dict().items()}
    write_safetensors(tmp_path / "vit.safetensors", state, {"format": "pd"})
    server.content = (tmp_path / "vit.safetensors").read_bytes()
    report = load_weights(model, server.address("vit.safetensors"), strict=True)
    np.testing.assert_array_equal(model.head.weight.numpy(), source.head.weight.numpy())
    assert any("SHA-256" in notice for notice in report.notices) and "SHA-256" in report.summary()


def head(handler, *lines):
    """Send the head of an answer, with these lines."""
    handler.wfile.write("\r\n".join(["HTTP/1.1 200 OK", *lines, "", ""]).encode("latin1"))


def test_without_a_length_it_has_to_end_as_the_protocol_says_or_to_have_a_checksum(server, weights, tmp_path):
    content = weights.read_bytes()

    def without_length(handler):
        head(handler)
        handler.wfile.write(content)

    def in_chunks(handler, end=b"0\r\n\r\n"):
        head(handler, "Transfer-Encoding: chunked")
        for start in range(0, len(content), 50):
            part = content[start : start + 50]
            handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        handler.wfile.write(end)

    server.answer = without_length
    with pytest.raises(UserError, match="does not send the length.*add #sha256="):
        read_weights(server.address("w.safetensors"))
    read_weights(f"{server.address('w.safetensors')}#sha256={digest(weights)}")
    server.answer = in_chunks
    read_weights(server.address("chunks.safetensors"))
    server.answer = lambda handler: in_chunks(handler, end=b"")
    with pytest.raises(UserError, match="the connection broke after"):
        read_weights(server.address("cut.safetensors"))
    server.answer = lambda handler: in_chunks(handler, end=b"32\r\nhalf a chunk")
    with pytest.raises(UserError, match="the connection broke after"):
        read_weights(server.address("cut.safetensors"))
    assert not [*(tmp_path / "cache").rglob("cut*")]


def test_a_copy_that_was_spoilt_on_the_disk_is_fetched_again(server, weights, tmp_path):
    address = f"{server.address('w.safetensors')}#sha256={digest(weights)}"
    read_weights(address)
    (copy,) = (tmp_path / "cache").rglob("*.safetensors")
    copy.write_bytes(copy.read_bytes()[:-1] + b"x")
    np.testing.assert_array_equal(read_weights(address).state["a"], np.arange(6.0))
    assert len(server.requests) == 2


def test_what_cannot_be_stored_is_one_line_that_names_the_folder(server, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(download.CACHE_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot write \S+/file/weights.*PADDLEVIT_DIST_CACHE names another folder"):
        read_weights(server.address("w.safetensors"))


@pytest.mark.parametrize("end", ["..", ".", "", "%2e%2e", "a%2f..", "x" * 300, ".hidden", "a\\..\\b"])
def test_the_end_of_an_address_never_leads_out_of_its_folder(end, server, tmp_path):
    copy = download.local_copy(server.address(f"zoo/{end}")).path
    assert copy.read_bytes() == server.content
    assert copy.parent.parent == tmp_path / "cache" / "weights" and copy.name != ".."


def test_other_schemes_and_redirections_to_them_are_refused(server, weights):
    for address in ("ftp://127.0.0.1/w.pth", "data://text", "s3://bucket/w.pth"):
        with pytest.raises(UserError, match="expected an address that begins with http://, https:// or file://$"):
            read_weights(address)
    for target in (f"file://{weights}", "ftp://127.0.0.1/w.pth"):
        location = f"Location: {target}"
        server.answer = lambda handler, line=location: handler.wfile.write(
            f"HTTP/1.1 302 Found\r\n{line}\r\n\r\n".encode()
        )
        with pytest.raises(UserError, match="cannot be fetched"):
            read_weights(server.address("w.safetensors"))


def test_credentials_reach_their_server_and_no_message(server, tmp_path):
    sent = []

    def answer(handler):
        sent.append(handler.headers.get("Authorization"))
        if handler.path.startswith("/moved"):
            host = f"localhost:{server.server.server_port}"
            handler.wfile.write(f"HTTP/1.1 302 Found\r\nLocation: http://{host}/here\r\n\r\n".encode())
        else:
            handler.send_error(403, "for\x1b[2Jbidden")

    server.answer = answer
    address = server.address("moved?token=word").replace("//", "//me:pass%20word@")
    with pytest.raises(
        UserError, match=r"http://\*\*\*@127.*moved\?token=\*\*\* cannot .* 403 for\\x1b\[2Jbidden"
    ) as caught:
        read_weights(address)
    assert sent == ["Basic " + base64.b64encode(b"me:pass word").decode(), None]
    assert "word" not in str(caught.value)
    assert "word" not in refusal_of(read_weights, "http://me:word@127.0.0.1:nonsense/w.pth")


def test_the_checksum_of_the_first_copy_holds_for_every_later_one(server, weights, tmp_path):
    address, first = server.address("w.safetensors"), digest(weights)
    assert "was not checked" in read_weights(address).notices[0]
    (kept,) = (tmp_path / "cache").rglob("w.safetensors")
    assert kept.with_name("w.safetensors.sha256").read_text() == f"{first}\n"

    kept.write_bytes(b"spoilt")
    assert read_weights(address).notices == () and digest(kept) == first

    kept.unlink()
    write_safetensors(weights, {"a": np.arange(7.0)})
    server.content = weights.read_bytes()
    with pytest.raises(
        UserError, match=f"expected {first}: .*; .*w.safetensors.sha256 has that of its first copy: remove"
    ):
        read_weights(address)
    assert not kept.exists()
    kept.with_name("w.safetensors.sha256").unlink()
    assert len(read_weights(address).state["a"]) == 7
