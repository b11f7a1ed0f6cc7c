"""An array crosses by its name, and a full /dev/shm is the user's to mend."""

import pickle

import numpy as np
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
