"""An index of as many images as ImageNet has."""

import hashlib
import pickle
import tracemalloc

import numpy as np

from paddlevit_dist.core.data.path_index import ensure_path_index, make_batch

ENTRIES = 1_281_167


def make_path(number: int) -> str:
    return f"train/n{number // 1300:08d}/n{number // 1300:08d}_{number}.JPEG"


def batches():
    for first in range(0, ENTRIES, 1 << 16):
        numbers = range(first, min(first + (1 << 16), ENTRIES))
        yield make_batch([make_path(number).encode() for number in numbers], np.array(numbers) // 1300)


def test_a_million_entries_are_a_file_name_to_pickle_and_quick_to_find(tmp_path):
    index = ensure_path_index(tmp_path, "name", hashlib.sha256(b"").digest(), batches)
    pickled = pickle.dumps(index)
    assert len(pickled) <= 1000
    wanted = np.random.default_rng(0).integers(0, ENTRIES, 3000).tolist()

    tracemalloc.start()
    opened = pickle.loads(pickled)
    assert len(opened) == ENTRIES
    found = [(opened.path(number), opened.label(number)) for number in wanted]
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found == [(make_path(number), number // 1300) for number in wanted]
    assert most_bytes < 5e6  # the file is mapped: no object for each entry
