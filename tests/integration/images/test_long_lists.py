"""Lists of many images are handed to workers by their names."""

import pickle

import pytest
from unit.images.data import test_imagenet
from unit.images.data.test_imagenet import listed

from paddlevit_dist import UserError

root = test_imagenet.root  # a fixture


def test_a_list_of_many_batches_pickles_to_a_kilobyte_and_names_the_line_of_a_mistake(root, cache):
    lines = [
        f"train/n{i % 1000:08d}/n{i % 1000:08d}_{i}.JPEG {i % 1000}" for i in range(66_000)
    ]  # of which 65,536 are read at once
    dataset = listed(root, cache, "\n".join(lines), "train")
    pickled = pickle.dumps(dataset)
    assert len(pickled) <= 1000
    assert pickle.loads(pickled).describe(65_921) == f"{root}/train/n00000921/n00000921_65921.JPEG"
    lines[65_900] = "p.jpg 1000"
    with pytest.raises(UserError, match="line 65901: label 1000"):
        listed(root, cache, "\n".join(lines), "train")
