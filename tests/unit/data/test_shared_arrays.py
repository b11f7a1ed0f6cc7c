"""An array crosses by its name, and a full /dev/shm is the user's to mend."""

import pickle
import shutil

import numpy as np
import paddle
import pytest
from support.shared_files import own_files

from paddlevit_dist.data import shared_arrays
from paddlevit_dist.runtime.errors import UserError


def test_an_array_is_pickled_by_name_and_read_once():
    array = np.arange(100_000, dtype=np.int64).reshape(100, 1000)
    content = pickle.dumps(shared_arrays.share(array[:, ::-1], shared_arrays.new_prefix()))
    assert len(content) < 500
    received = pickle.loads(content)
    np.testing.assert_array_equal(np.asarray(received), array[:, ::-1])
    assert own_files() == []


def test_full_shared_memory_is_the_users_to_mend(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared_arrays.np, "ascontiguousarray", full)
    with pytest.raises(UserError, match=r"no room for a batch of 8 MiB .*NUM_WORKERS.*shm-size"):
        shared_arrays.share(np.zeros(2**20), shared_arrays.new_prefix())
    assert own_files() == []


def test_room_counts_all_files_of_this_loader_and_none_of_another(tmp_path, monkeypatch):
    prefix, million = shared_arrays.new_prefix(), 2**20
    for name, size in (("a", million), ("b", 2 * million), ("c", 4 * million)):
        (tmp_path / f"{prefix}{name}").write_bytes(bytes(size))
    (tmp_path / "of another").write_bytes(bytes(million))
    monkeypatch.setattr(shared_arrays, "FOLDER", tmp_path)
    free = shutil.disk_usage(tmp_path)._replace(free=million)
    monkeypatch.setattr(shared_arrays.shutil, "disk_usage", lambda folder: free)
    batch = [paddle.zeros([million // 4]), paddle.zeros([3])]  # the second is too small to be shared
    shared_arrays.require_room(batch, 8, prefix)
    with pytest.raises(UserError, match="has room for 8 MiB, and the batches .* need 9 MiB"):
        shared_arrays.require_room(batch, 9, prefix)
