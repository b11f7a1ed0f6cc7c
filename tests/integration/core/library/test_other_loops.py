"""Our samplers and data sets under other loops, and other data sets under our samplers."""

import pickle
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest
from integration.core.library import paddles_loader
from support.processes import ROOT, run_command

import paddlevit_dist as pv
from paddlevit_dist.core.data.loader import DeviceLoader
from paddlevit_dist.core.data.sampler import SampleKey
from paddlevit_dist.core.registry.lookup import resolve


def test_our_samplers_give_any_data_set_its_indices():
    paddles_loader.give_indices(workers=0)


def test_a_key_is_its_index_and_keeps_its_epoch_and_repeat():
    key = SampleKey(3, 7, 1)
    assert [*range(10)][key] == key.index == 7 and isinstance(key, int) and type(key.index) is int
    again = pickle.loads(pickle.dumps(key))
    assert (again.epoch, again.index, again.repeat) == (3, 7, 1) and again == key
    assert key != SampleKey(3, 7, 2) and key != SampleKey(4, 7, 1) and len({key, SampleKey(3, 7, 2)}) == 2


def test_paddles_loader_has_the_batches_of_a_training():
    paddles_loader.read_batches_of_a_training(workers=0)
    samples = pv.open_dataset("vit_digits", seed=5)
    sampler = pv.TrainingSampler(samples, 32, seed=samples.seed)
    first = next(iter(DeviceLoader(samples, sampler, samples.collate, num_workers=0, seed=samples.seed)))
    images, labels = next(iter(paddle.io.DataLoader(samples, batch_sampler=sampler)))  # without a collate_fn of ours
    np.testing.assert_array_equal(images.numpy(), first["images"].numpy())
    assert labels.tolist() == first["labels"].tolist()


def test_processes_of_paddles_loader_read_our_samples_and_transforms(tmp_path):
    program = Path(paddles_loader.__file__)
    ended = run_command([sys.executable, str(program), str(tmp_path)], PYTHONPATH=str(ROOT))
    assert ended.code == 0, ended.err


def test_data_sets_are_indexed_and_end():
    stored = resolve("dataset", "digits")(None, "val", None)
    assert len(list(stored)) == len(stored) == 360
    np.testing.assert_array_equal(np.asarray(stored[-1][0]), np.asarray(stored.read(359)[0]))
    for index in (360, -361):
        with pytest.raises(IndexError, match=f"index {index} of 360"):
            stored[index]
    samples = pv.open_dataset("vit_digits", "val")
    assert samples[0][0].dtype == np.uint8 and len(samples.class_names) == 10
