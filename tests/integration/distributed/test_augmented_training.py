"""Two processes train with all randomness enabled."""

import numpy as np
from support.processes import run_workers, succeeded

EVERYTHING = (
    "TRAIN.RAND_AUGMENT rand-m9-mstd0.5-inc1 TRAIN.RANDOM_ERASE_PROB 0.5 TRAIN.MIXUP_ALPHA 0.8 TRAIN.CUTMIX_ALPHA 1.0 "
    "TRAIN.MIXUP_MODE elem TRAIN.SMOOTHING 0.1 TRAIN.REPEATED_AUGMENT 2 TRAIN.WARMUP_STEPS 3"
).split()


def trained(output, *arguments):
    target = "support.small_runs:train"
    ended = run_workers(target, str(output), ["-epochs=1", "-batch_size=8", *EVERYTHING, *arguments])
    return succeeded(ended).results


def test_two_processes_train_alike_and_repeatably_with_all_augmentation(tmp_path):
    first, second = trained(tmp_path / "first", "-accum_iter=2")
    assert len(first["losses"]) == 10 and np.isfinite(first["losses"]).all()
    for name, weights in first["weights"].items():
        np.testing.assert_array_equal(weights, second["weights"][name])
        assert (weights != first["initial"][name]).any()
    again, _ = trained(tmp_path / "again", "-accum_iter=2", "DATA.NUM_WORKERS", "1")
    assert again["losses"] == first["losses"]
