"""Files that Hugging Face's library keeps."""

import hashlib

import huggingface_hub
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.checkpoint import download
from paddlevit_dist.checkpoint.published import find_sibling_file


@pytest.mark.parametrize("name", ["timm/resnet50.a1_in1k.", "timm/resnet50--a1", "timm/.x"])
def test_a_name_that_the_library_calls_invalid_is_one_line(name):
    with pytest.raises(
        UserError, match=f"^hf:{name}: not a valid name of a repository .*check the spelling of hf:OWNER/REPOSITORY$"
    ):
        download.download_from_hub(name, "model.safetensors", "http://127.0.0.1:9")
    with pytest.raises(UserError, match="not a valid name of a repository"):
        find_sibling_file(f"hf:{name}", "config.json", may_download=False)


def keep(folder, content: bytes, digest: str):
    """A file as that library keeps it: a link to one that is named by its digest."""
    (folder / "blobs").mkdir()
    (folder / "blobs" / digest).write_bytes(content)
    (folder / "file").symlink_to(folder / "blobs" / digest)
    return folder / "file"


@pytest.fixture
def fetched(monkeypatch, tmp_path):
    """Calls of the library for a file, which brings a whole one."""
    calls = []

    def fetch(repository, file, endpoint, force_download):
        calls.append(force_download)
        (tmp_path / "whole").write_bytes(b"whole")
        return str(tmp_path / "whole")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    return calls


@pytest.mark.parametrize("content, calls", [(b"whole", []), (b"who", [True])])
def test_weights_that_were_cut_are_fetched_again(monkeypatch, tmp_path, fetched, content, calls):
    kept = keep(tmp_path, content, hashlib.sha256(b"whole").hexdigest())
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: str(kept))
    lines: list[str] = []
    copy = download.download_from_hub("a/b", "file", "http://127.0.0.1:9", log=lines.append)
    assert copy.path.read_bytes() == b"whole" and fetched == calls
    assert all(line.endswith("again: the cached copy is damaged") for line in lines) and len(lines) == len(calls)


@pytest.mark.parametrize("content, calls", [(b"whole", []), (b"who", [True])])
def test_small_files_that_were_cut_are_fetched_again(monkeypatch, tmp_path, fetched, content, calls):
    kept = keep(tmp_path, content, hashlib.sha1(b"blob 5\0whole").hexdigest())
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: str(kept))
    assert (
        download.download_small_file("a/b", "file", "http://127.0.0.1:9").read_bytes() == b"whole" and fetched == calls
    )
