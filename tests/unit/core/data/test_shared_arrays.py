"""An array crosses by its name, and a full /dev/shm is the user's to mend."""

import os
import pickle
import shutil

import numpy as np
import paddle
import pytest
from support.shared_files import own_files

from paddlevit_dist import UserError
from paddlevit_dist.core.data import shared_arrays


def test_an_array_is_pickled_by_name_and_read_once():
    array = np.arange(100_000, dtype=np.int64).reshape(100, 1000)
    content = pickle.dumps(shared_arrays.share(array[:, ::-1], shared_arrays.new_prefix()))
    assert len(content) < 500
    received = pickle.loads(content)
    np.testing.assert_array_equal(np.asarray(received), array[:, ::-1], strict=True)
    assert own_files() == []


def test_full_shared_memory_is_the_users_to_mend(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared_arrays.np, "ascontiguousarray", full)
    with pytest.raises(UserError, match=r"no room for a batch of 8 MiB .*NUM_WORKERS.*shm-size"):
        shared_arrays.share(np.zeros(2**20), shared_arrays.new_prefix())
    assert own_files() == []


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of files in shared memory."""
    monkeypatch.setattr(shared_arrays, "FOLDER", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_room_counts_all_files_of_this_loader_and_none_of_another(tmp_path, monkeypatch):
    prefix, million = shared_arrays.new_prefix(), 2**20
    for name, size in (("a", million), ("b", 2 * million), ("c", 4 * million)):
        (tmp_path / f"{prefix}{name}").write_bytes(bytes(size))
    (tmp_path / "of another").write_bytes(bytes(million))
    free = shutil.disk_usage(tmp_path)._replace(free=million)
    monkeypatch.setattr(shared_arrays.shutil, "disk_usage", lambda folder: free)
    batch = [paddle.zeros([million // 4]), paddle.zeros([3])]  # the second is too small to be shared
    shared_arrays.require_room(batch, 8, prefix)
    with pytest.raises(UserError, match="has room for 8 MiB, and the batches .* need 9 MiB"):
        shared_arrays.require_room(batch, 9, prefix)


def test_small_arrays_and_those_of_machines_without_shared_memory_are_pickled(folder, tmp_path):
    prefix, small, large = shared_arrays.new_prefix(), np.zeros(2**16 - 1, np.uint8), np.zeros(2**16, np.uint8)
    assert shared_arrays.share(small, prefix) is small
    shared = shared_arrays.share(large, prefix)
    assert [str(path) for path in tmp_path.iterdir()] == [shared.path] and shared.path.startswith(
        f"{tmp_path}/{prefix}"
    )
    assert (shared.shape, shared.dtype, shared.strides) == (large.shape, np.uint8, (0,))
    os.unlink(shared.path)
    tmp_path.rmdir()
    assert shared_arrays.share(large, prefix) is large
    shared_arrays.require_room([paddle.zeros([2**18])], 2**40, prefix)
    shared_arrays.remove_leftovers(prefix)


def test_a_tensor_has_the_memory_of_the_file_and_leaves_none(tmp_path):
    array = np.arange(12, dtype=np.int16).reshape(3, 4)
    (tmp_path / "file").write_bytes(array.tobytes())
    tensor = shared_arrays.map_file(str(tmp_path / "file"), (3, 4), "<i2")
    assert np.array_equal(np.asarray(tensor), array) and not (tmp_path / "file").exists()


def test_files_of_this_loader_and_of_dead_processes_are_removed(folder, tmp_path):
    first, second = shared_arrays.new_prefix(), shared_arrays.new_prefix()
    namespace = f"paddlevit_dist_{os.stat('/proc/self/ns/pid').st_ino}_"
    head, number, _ = first.removeprefix(namespace).split("_", 2)
    assert first.startswith(namespace) and head == str(os.getpid())
    assert second == f"{namespace}{head}_{int(number) + 1}_{shared_arrays.stale_resources.token()}_"
    kept = [f"{second}x", f"{namespace}1_0_x", "paddlevit_dist_1_5_0_x", "other"]
    gone = [f"{first}x", f"{first}y", f"{namespace}{2**22 + 1}_0_x"]
    for name in (*kept, *gone):
        (tmp_path / name).touch()
    shared_arrays.remove_leftovers(first)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)
