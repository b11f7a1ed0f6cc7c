"""Files that Hugging Face's library keeps."""

import errno
import hashlib

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint import download
from paddlevit_dist.core.checkpoint.published import find_sibling_file


@pytest.mark.parametrize("name", ["timm/resnet50.a1_in1k.", "timm/resnet50--a1", "timm/.x"])
def test_a_name_that_the_library_calls_invalid_is_one_line(name):
    with pytest.raises(
        UserError, match=f"^hf:{name}: not a valid name of a repository .*check the spelling of hf:OWNER/REPOSITORY$"
    ):
        download.download_from_hub(name, "model.safetensors", "http://127.0.0.1:9")
    with pytest.raises(UserError, match="not a valid name of a repository"):
        find_sibling_file(f"hf:{name}", "config.json", may_download=False)


COMMIT, PLACE = "0123456789" * 4, "/a/b/resolve/main/file"


@pytest.fixture
def keep(hub, tmp_path):
    """Return a function that keeps a file as that library does: a link to one that is named by its digest."""
    hub.beside[PLACE] = b"whole"

    def keep_file(content: bytes, digest: str) -> None:
        folder = tmp_path / "of_hugging_face" / "hub" / "models--a--b"
        for name in ("blobs", "refs", f"snapshots/{COMMIT}"):
            (folder / name).mkdir(parents=True)
        (folder / "blobs" / digest).write_bytes(content)
        (folder / "refs" / "main").write_text(COMMIT)
        (folder / "snapshots" / COMMIT / "file").symlink_to(folder / "blobs" / digest)

    return keep_file


@pytest.mark.parametrize("content, requests", [(b"whole", []), (b"who", [PLACE])])
def test_weights_that_were_cut_are_fetched_again(hub, keep, content, requests):
    keep(content, hashlib.sha256(b"whole").hexdigest())
    lines: list[str] = []
    copy = download.download_from_hub("a/b", "file", hub.address().rstrip("/"), log=lines.append)
    assert copy.path.read_bytes() == b"whole" and hub.requests == requests
    assert all(line.endswith("again: the cached copy is damaged") for line in lines) and len(lines) == len(requests)


def test_a_small_file_that_a_repository_does_not_have_is_none(hub, tmp_path):
    assert download.download_small_file("a/b", "absent", hub.address().rstrip("/")) is None
    folder = tmp_path / "of_hugging_face" / "hub" / "models--c--d"
    for name in ("refs", f".no_exist/{COMMIT}"):  # as that library remembers it
        (folder / name).mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    (folder / ".no_exist" / COMMIT / "absent").touch()
    assert download.download_small_file("c/d", "absent", "http://127.0.0.1:1") is None  # nobody is asked


@pytest.mark.parametrize("content, requests", [(b"whole", []), (b"who", [PLACE])])
def test_small_files_that_were_cut_are_fetched_again(hub, keep, content, requests):
    hub.digest = lambda content: hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # Git's
    keep(content, hub.digest(b"whole"))
    found = download.download_small_file("a/b", "file", hub.address().rstrip("/"))
    assert found.read_bytes() == b"whole" and hub.requests == requests


STORED = {"ENOSPC": True, "EDQUOT": True, "EACCES": True, "EPERM": True, "EROFS": True, "EIO": False}


@pytest.mark.parametrize("name", STORED)
def test_what_the_disk_does_not_take_is_told_with_the_folder_and_not_with_a_proxy(name):
    error = OSError(getattr(errno, name), "no")
    with pytest.raises(UserError) as refusal, download.in_one_line("hf:a/b"):
        raise error
    begin, _, advice = str(refusal.value).rpartition("; ")
    assert begin.startswith("hf:a/b cannot be fetched: ") and "\n" not in begin
    assert ("it cannot be stored: " in begin) is STORED[name] is (advice == "HF_HOME names another folder")


@pytest.mark.parametrize(
    ("kind", "reason", "advice"),
    [
        ("RepositoryNotFoundError", "there is no such repository, or access to it is restricted", "set HF_TOKEN"),
        ("GatedRepoError", "there is no such repository, or access to it is restricted", "set HF_TOKEN"),
        ("OfflineModeIsEnabled", "HF_HUB_OFFLINE is set and there is no local copy", "give a file"),
        ("EntryNotFoundError", "the repository has no such file", "give a file of weights instead"),
        ("LocalEntryNotFoundError", "timed out", "a proxy in https_proxy and a mirror in HF_ENDPOINT"),
    ],
)
def test_each_error_of_the_library_has_its_advice(kind, reason, advice):
    from huggingface_hub import errors

    cls = getattr(errors, kind)
    error = cls.__new__(cls)
    Exception.__init__(error, "far away")
    error.__cause__ = TimeoutError("timed out") if kind == "LocalEntryNotFoundError" else None
    with (
        pytest.raises(UserError, match=f"^hf:a/b cannot be fetched: {reason}; {advice}"),
        download.in_one_line("hf:a/b"),
    ):
        raise error
