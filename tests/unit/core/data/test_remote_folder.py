"""Files below an address: packages that are missing, readers that skip, and batches that announce their indices."""

import asyncio
import io
import logging
import os
import pickle
import signal
import socket
import sys
import threading
import time

import numpy as np
import pytest
from support.hosts.range_server import RangeServer
from support.processes import wait_until

from paddlevit_dist import StorageOutage, UserError
from paddlevit_dist.core.data.loader import DeviceLoader
from paddlevit_dist.core.data.remote_folder import RangeRequest, RemoteFile, RemoteFolder, RemoteReader
from paddlevit_dist.core.data.sampler import EvaluationSampler

pytest.importorskip("aiohttp")
CONTENT = np.random.default_rng(0).integers(0, 256, 100_000, np.uint8).tobytes()


@pytest.fixture
def server(tmp_path):
    (tmp_path / "folder with space").mkdir()
    (tmp_path / "folder with space" / "a.bin").write_bytes(CONTENT)
    with RangeServer(tmp_path) as server:
        yield server


def test_ranges_are_returned_in_order_also_by_a_pickled_copy(server):
    folder = pickle.loads(pickle.dumps(RemoteFolder(server.address("folder with space/"))))
    [file] = folder.examine(["a.bin"])
    assert file.size == len(CONTENT) and file.tag.startswith('"')
    spans = [(7 * number, number) for number in range(60)]
    found = folder.read_ranges([RangeRequest("a.bin", file, *span) for span in spans])
    assert found == [CONTENT[offset : offset + size] for offset, size in spans]
    with pytest.raises(UserError, match="a.bin has changed since it was opened"):
        folder.read_ranges([RangeRequest("a.bin", RemoteFile(file.size, '"other"'), 0, 5)])
    assert set(folder.list_files()) == {"a.bin"} and folder.read("a.bin") == CONTENT
    with pytest.raises(FileNotFoundError):
        folder.read("b.bin")
    with pytest.raises(UserError, match="b.bin cannot be read: it does not exist: the server answers 404"):
        folder.examine(["b.bin"])


def altered(content_range=None, body=None, code=206, **others):
    """Return a change of an answer to the range 100-149."""

    def alter(_, headers, content):
        headers = {**headers, **{name.replace("_", "-"): value for name, value in others.items()}}
        if content_range is not None:
            headers["Content-Range"] = content_range
        return code, {name: value for name, value in headers.items() if value}, content if body is None else body

    return alter


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (
            altered("bytes 0-49/100000", CONTENT[:50]),
            "request for bytes 100-149 is of bytes 0-49: the server, or a proxy",
        ),
        (altered("bytes 101-150/100000", CONTENT[101:151]), "bytes 100-149 is of bytes 101-150"),
        (altered("bytes 100-139/100000", CONTENT[100:140]), "bytes 100-149 is of bytes 100-139"),
        (altered("bytes 100-149/99999"), "has changed since it was opened: 99,999 bytes .* before 100,000"),
        (altered("bytes 100-149/*"), "sends whole files only"),
        (altered(""), "sends whole files only"),
        (altered(code=200), "sends whole files only"),
        (altered(ETag='"other"'), 'has changed since it was opened: 100,000 bytes with tag "other"'),
        (altered(Content_Encoding="gzip"), r"compresses its answer \(gzip\)"),
        (altered(code=416), "the server answers 416"),
        (altered(code=302, Location="/folder%20with%20space/a.bin"), "a.bin cannot be read: TooManyRedirects"),
        (altered(Transfer_Encoding="chunked"), r"in \d+ attempts within .* s: Content-Length can't be present"),
        (altered("bytes 100-149/" + "9" * 5000), "sends whole files only"),
        (altered(body=CONTENT[100:149]), r"in \d+ attempts within .* s: 49 of 50 bytes arrived"),
        (altered(body=CONTENT[100:151]), r"in \d+ attempts within .* s: 51 of 50 bytes arrived"),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_is_refused(alter, message, server):
    folder = RemoteFolder(server.address("folder with space"), first_pause_seconds=1e-4)
    [file] = folder.examine(["a.bin"])
    request = RangeRequest("a.bin", file, 100, 50)
    assert folder.read_ranges([request]) == [CONTENT[100:150]]
    server.alter = alter
    with pytest.raises((UserError, StorageOutage), match=message) as caught:
        folder.read_ranges([request])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("marks", "part_marks"),
    [
        (("Last-Modified",), ()),
        (("ETag",), ()),
        (("ETag", "Last-Modified"), ("Last-Modified",)),
        (("Last-Modified",), ("ETag", "Last-Modified")),
        (("Last-Modified",), ("Last-Modified",)),
    ],
)
def test_a_server_that_marks_parts_in_another_way_has_changed_nothing_until_it_has(marks, part_marks, server):
    folder, path = RemoteFolder(server.address("folder with space")), server.folder / "folder with space" / "a.bin"
    server.marks, server.part_marks = marks, part_marks
    [file] = folder.examine(["a.bin"])
    request = RangeRequest("a.bin", file, 100, 50)
    assert folder.read_ranges([request, request]) == [CONTENT[100:150]] * 2
    path.write_bytes(CONTENT[::-1])  # of the same size
    os.utime(path, (10**9, 10**9))
    with pytest.raises(UserError, match="a.bin has changed since it was opened: 100,000 bytes with tag"):
        folder.read_ranges([request])


def test_libraries_that_tell_where_credentials_were_found_only_warn(server, monkeypatch):
    loggers = [logging.getLogger(name) for name in ("aiobotocore", "botocore", "fsspec", "s3fs")]
    for logger in loggers:
        monkeypatch.setattr(logger, "level", logging.DEBUG)
    RemoteFolder(server.address("folder with space")).examine(["a.bin"])
    assert {logger.level for logger in loggers} == {logging.WARNING}


def test_the_tag_of_a_file_that_has_just_been_written_may_be_weak(server):
    folder = RemoteFolder(server.address("folder with space"))
    [file] = folder.examine(["a.bin"])
    server.alter = lambda code, headers, body: (code, {**headers, "ETag": f"W/{headers['ETag']}"}, body)
    assert folder.read_ranges([RangeRequest("a.bin", file, 100, 50)]) == [CONTENT[100:150]]


@pytest.mark.parametrize(
    "name", ["a#b", "a?b", "50%25", "100%", "a+b", "a&amp;b", "a&b", "r d", "猫", "it's", "http", '"']
)
def test_names_that_an_address_quotes_are_listed_and_read_as_they_are(name, server):
    (server.folder / name).mkdir()
    (server.folder / name / f"{name}.bin").write_bytes(CONTENT[:9])
    (server.folder / name / "z.bin").write_bytes(CONTENT)
    assert {name, "folder with space"} == set(RemoteFolder(server.address()).list_files())
    folder = RemoteFolder(server.address())
    assert set(folder.list_files(name)) == {f"{name}.bin", "z.bin"}
    [file] = folder.examine([f"{name}/{name}.bin"])
    assert file.size == 9 and folder.read(f"{name}/{name}.bin") == CONTENT[:9]
    assert folder.read_ranges([RangeRequest(f"{name}/{name}.bin", file, 2, 5)]) == [CONTENT[2:7]]


def test_an_interrupted_request_ends_and_others_still_work(server):
    folder = RemoteFolder(server.address("folder with space"))
    [file] = folder.examine(["a.bin"])
    request = RangeRequest("a.bin", file, 100, 50)
    server.pause_seconds = 120.0

    def interrupt() -> None:
        assert server.is_pausing.wait(60)  # so the main thread waits for an answer
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        folder.read_ranges([request] * 3)
    assert time.monotonic() - started < 90
    interrupting.join()
    wait_until(lambda: not asyncio.all_tasks(folder._system.loop), "a request goes on", 60)
    server.pause_seconds = 0.0
    assert folder.read_ranges([request]) == [CONTENT[100:150]]


@pytest.mark.parametrize(
    "ask",
    [
        lambda folder: folder.examine(["a.bin"])[0].size == len(CONTENT),
        lambda folder: folder.read("a.bin") == CONTENT,
        lambda folder: list(folder.list_files()) == ["a.bin"],
    ],
)
def test_every_request_is_repeated_and_told_once(ask, server, capfd):
    folder = RemoteFolder(server.address("folder with space"), first_pause_seconds=0.02)  # enough for a busy machine
    for status in (503, 429, 500):
        server.refusal, server.refusals = status, 2
        assert ask(folder)
    told = capfd.readouterr().err
    assert told.count("\n") == 1 and "answers 503" in told and "are repeated for 10 s (not shown again)" in told
    server.refusals = 9999
    folder = RemoteFolder(server.address("folder with space"), first_pause_seconds=0.0004)
    with pytest.raises(
        StorageOutage, match=r"cannot be (read|listed) in \d+ attempts within .* s: the server answers 500"
    ):
        ask(folder)


@pytest.mark.parametrize(("status", "meaning"), [(404, "does not exist: "), (403, "does not exist or may"), (410, "")])
def test_what_is_missing_or_refused_is_asked_for_once(status, meaning, server):
    folder = RemoteFolder(server.address("folder with space"))
    server.refusal, server.refusals = status, 9999
    with pytest.raises(UserError, match=f"a.bin cannot be read: .*{meaning}.*the server answers {status}"):
        folder.examine(["a.bin"])
    assert sum(server.requests.values()) == 2  # HEAD, and GET, as some servers refuse the first
    with pytest.raises(FileNotFoundError, match="cannot be listed"):
        folder.list_files()
    with pytest.raises(UserError if status == 410 else FileNotFoundError, match="cannot be read"):
        folder.read("a.bin")


def test_a_server_that_sends_no_byte_of_a_listing_has_failed():
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts connections, and answers none
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        folder = RemoteFolder(address, timeout_seconds=0.02, first_pause_seconds=1e-4)
        with pytest.raises(StorageOutage, match=r"cannot be listed in \d+ attempts within .* s: no answer in time"):
            folder.list_files()


def test_a_server_without_head_is_asked_for_a_byte(server):
    folder = RemoteFolder(server.address("folder with space"))
    expected = folder.examine(["a.bin"])
    server.refused_methods = ("HEAD",)
    assert folder.examine(["a.bin"]) == expected


def test_a_reader_skips_and_reads_as_a_file_does(server):
    folder = RemoteFolder(server.address("folder with space"))
    reader = io.BufferedReader(RemoteReader(folder, "a.bin", folder.examine(["a.bin"])[0]), 1000)
    local, generator = io.BytesIO(CONTENT), np.random.default_rng(1)
    for _ in range(20):
        offset, size = (int(generator.integers(limit)) for limit in (len(CONTENT) + 100, 3000))
        assert reader.seek(offset) == local.seek(offset)
        assert reader.read(size) == local.read(size) and reader.tell() == local.tell()


def test_a_missing_package_is_one_line_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UserError, match=r"s3://bucket needs s3fs, .*: pip install '\.\[remote\]' in a clone"):
        RemoteFolder("s3://bucket")


class RemoteNumbers:
    """Samples that are fetched in batches; a sample is what was fetched for it."""

    def __init__(self):
        self.dataset, self.is_remote, self.fetched = self, True, []

    def __len__(self):
        return 10

    def prefetch(self, indices):
        self.fetched = list(indices)

    def sample(self, index, generator):
        return np.array([index, *self.fetched])

    def describe(self, index):
        return str(index)


def test_samples_of_a_batch_are_fetched_before_it_is_read():
    sampler = EvaluationSampler(range(10), 4, rank=0, world_size=1)
    loader = DeviceLoader(RemoteNumbers(), sampler, lambda rows: {"rows": np.stack(rows)}, num_workers=0, seed=0)
    batches = [batch["rows"].numpy().tolist() for batch in loader]
    assert batches[1] == [[index, 4, 5, 6, 7] for index in (4, 5, 6, 7)] and batches[2][1] == [9, 8, 9]
