"""Weights by name, from a local server in Hugging Face's place, and connections that break on the way."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.servers import Server

from paddlevit_dist.checkpoint import download
from paddlevit_dist.checkpoint.array_files import write_safetensors
from paddlevit_dist.checkpoint.published import PUBLISHED, published
from paddlevit_dist.checkpoint.weights import read_weights
from paddlevit_dist.exporting.command import load_trained
from paddlevit_dist.prediction.trained import open_source
from paddlevit_dist.registry import MODELS
from paddlevit_dist.runtime.errors import UserError

from .test_download import digest

NAME = "vit_tiny_patch16_224.augreg_in21k_ft_in1k"
PATH = f"/timm/{NAME}/resolve/main/model.safetensors"


@pytest.fixture
def weights(tmp_path):
    values = np.arange(50_000, dtype=np.float64)
    write_safetensors(tmp_path / "w.safetensors", {"a": values})
    return tmp_path / "w.safetensors"


@pytest.fixture
def hub(weights, tmp_path, monkeypatch):
    """A server that continues where it is asked to; ``cuts`` says after how many bytes each answer ends."""
    server = Server(weights.read_bytes())
    server.cuts, server.tag, server.ranges = [], '"one"', []

    def answer(handler):
        asked = handler.headers.get("Range")
        server.ranges.append(asked)
        start = 0
        if asked and handler.headers.get("If-Range") == server.tag:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
        rest = server.content[start:]
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(rest)))
        if server.tag:
            handler.send_header("ETag", server.tag)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        handler.end_headers()
        handler.wfile.write(rest[: server.cuts.pop(0)] if server.cuts else rest)

    server.answer = answer
    monkeypatch.setenv(download.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "of_hugging_face"))
    monkeypatch.setenv("HF_ENDPOINT", server.address(""))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "RETRY_SECONDS", (0.0, 0.0))
    with server:
        yield server


def kept(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache").rglob("*") if path.is_file())


@pytest.mark.parametrize("source", [NAME, NAME.upper(), f"hf:timm/{NAME}", f"hf-hub:timm/{NAME}"])
def test_a_name_is_fetched_once_from_the_endpoint_and_kept_under_it(source, hub, tmp_path):
    for _ in range(2):
        np.testing.assert_array_equal(read_weights(source).state["a"], np.arange(50_000.0))
    assert hub.requests == [PATH]
    assert len(list((tmp_path / "cache" / "weights").glob(f"timm--{NAME}--*/model.safetensors"))) == 1


def test_a_copy_belongs_to_the_endpoint_that_it_came_from(hub, monkeypatch):
    read_weights(NAME)
    monkeypatch.setenv("HF_ENDPOINT", f"{hub.address('')}/mirror")
    read_weights(NAME)
    assert len(hub.requests) == 2 and hub.requests[1].startswith("/mirror/")
    monkeypatch.setenv("HF_ENDPOINT", hub.address(""))
    read_weights(NAME)
    assert len(hub.requests) == 2


def test_processes_that_start_together_fetch_it_once(hub, weights):
    program = f"from paddlevit_dist.checkpoint.weights import read_weights as r; print(r('{NAME}').state['a'].sum())"
    both = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=120)[0].strip() for process in both] == ["1249975000.0"] * 2
    assert hub.requests == [PATH]


def test_a_path_of_that_name_wins(hub, weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).mkdir()
    weights.rename(tmp_path / NAME / "model.safetensors")
    assert read_weights(NAME).name == f"{NAME}/model.safetensors" and hub.requests == []


def test_a_copy_that_hugging_face_keeps_is_used_where_it_is(hub, weights, tmp_path):
    folder, commit = tmp_path / "of_hugging_face" / "hub" / f"models--timm--{NAME}", "0123456789" * 4
    for part in ("refs", f"snapshots/{commit}"):
        (folder / part).mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    (folder / "snapshots" / commit / "model.safetensors").symlink_to(weights)
    assert read_weights(NAME).state["a"].shape == (50_000,) and hub.requests == []


@pytest.mark.parametrize(
    "cuts, ranges",
    [([70_000, 100_000], [None, "bytes=70000-", "bytes=170000-"]), ([0, 70_000], [None, None, "bytes=70000-"])],
)
def test_a_broken_connection_is_continued_where_it_ended(hub, weights, cuts, ranges):
    hub.cuts = cuts
    np.testing.assert_array_equal(read_weights(NAME, sha256=digest(weights)).state["a"], np.arange(50_000.0))
    assert hub.ranges == ranges


@pytest.mark.parametrize("tag", [None, 'W/"weak"'])
def test_without_a_tag_that_identifies_the_content_it_begins_again(tag, hub, weights):
    hub.tag, hub.cuts = tag, [70_000]
    assert read_weights(NAME, sha256=digest(weights)).state["a"].shape == (50_000,)
    assert hub.ranges == [None, None]


def test_content_that_changed_in_between_is_not_mixed(hub, weights, tmp_path):
    first = hub.content
    write_safetensors(tmp_path / "other", {"a": np.zeros(50_000)})
    hub.cuts, plain = [70_000], hub.answer

    def then_changed(handler):
        plain(handler)
        hub.content, hub.tag = (tmp_path / "other").read_bytes(), '"two"'

    hub.answer = then_changed
    assert not read_weights(NAME).state["a"].any() and hub.content != first
    assert hub.ranges == [None, "bytes=70000-"]


def test_what_keeps_breaking_leaves_nothing_and_says_where_to_put_the_file(hub, tmp_path, weights):
    hub.cuts = [10, 10, 10]
    with pytest.raises(UserError) as error:
        read_weights(NAME)
    said = str(error.value)
    target = Path(said.rpartition(": ")[2])
    assert tmp_path / "cache" in target.parents and target.name == "model.safetensors"
    assert "bytes arrived; try again; where https_proxy names a proxy and HF_ENDPOINT a mirror" in said
    assert "or fetch that file elsewhere and give its path instead (-pretrained=FILE), or put it there: " in said
    assert hub.address(PATH[1:]) in said and "\n" not in said
    assert kept(tmp_path) == ["lock"] and len(hub.ranges) == 3
    target.write_bytes(weights.read_bytes())  # as the message says
    assert read_weights(NAME).state["a"].shape == (50_000,) and len(hub.ranges) == 3


def test_an_endpoint_that_nobody_serves_is_one_line_with_the_address(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(UserError, match=rf"^http://127.0.0.1:1{PATH} cannot be fetched: .*put it there: \S+$"):
        read_weights(NAME)


def test_a_digest_may_follow_the_name(hub, weights):
    (notice,) = read_weights(NAME).notices
    assert f"its SHA-256 {digest(weights)} was not checked: add #sha256=... after it" in notice
    assert read_weights(f"{NAME}#sha256={digest(weights)}").notices == ()
    with pytest.raises(UserError, match="its SHA-256 is .*, expected 1111"):
        read_weights(f"{NAME}#sha256={'1' * 64}")


def test_every_name_is_that_of_a_registered_model():
    assert {row.model for row in PUBLISHED.values()} <= set(MODELS)
    for name, row in PUBLISHED.items():
        assert published(name) is row and published(name.upper()) is row


def test_the_name_of_a_model_alone_is_a_path(hub):
    """Somebody's own weights are called so, and must not be replaced by others where they are missing."""
    with pytest.raises(UserError, match="no weights at vit_tiny_patch16_224"):
        read_weights("vit_tiny_patch16_224")
    assert hub.requests == [] and published("./" + NAME) is None


@pytest.mark.parametrize("source", [NAME, f"hf:timm/{NAME}"])
def test_predict_and_export_take_a_name_as_training_does(source, hub, tmp_path):
    """As docs/detection.md shows it; the name of timm's was recommended to whoever had typed it."""
    said = []
    found = open_source(source, "predict", recipe="vit_digits", say=said.append)
    assert Path(found.weights).match(f"cache/weights/timm--{NAME}--*/model.safetensors")
    assert hub.requests == [PATH] and len(said) == 1 and "model.safetensors" in said[0]
    for command in (lambda: open_source(source, "predict"), lambda: load_trained(source)):
        with pytest.raises(UserError, match="name the (recipe|model)") as error:
            command()
        assert "no weights at" not in str(error.value)


def test_a_mistyped_name_gets_the_one_that_was_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in (read_weights, lambda source: open_source(source, "predict")):
        with pytest.raises(UserError, match=f"weights that have such a name: {NAME}"):
            command(NAME.replace("in1k", "in2k"))
