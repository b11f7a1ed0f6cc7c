"""Files below an address: packages that are missing, readers that skip, and batches that announce their indices."""

import io
import pickle
import sys

import numpy as np
import pytest
from support.range_server import RangeServer

from paddlevit_dist.data.loader import DeviceLoader
from paddlevit_dist.data.remote_folder import RangeRequest, RemoteFile, RemoteFolder, RemoteReader
from paddlevit_dist.data.sampler import EvaluationSampler
from paddlevit_dist.runtime.errors import UserError

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
    with pytest.raises(UserError, match="b.bin cannot be read: it does not exist"):
        folder.examine(["b.bin"])


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
