"""Two processes train with all randomness enabled."""

import numpy as np
from support.processes import run_together

EVERYTHING = (
    "TRAIN.RAND_AUGMENT rand-m9-mstd0.5-inc1 TRAIN.RANDOM_ERASE_PROB 0.5 TRAIN.MIXUP_ALPHA 0.8 TRAIN.CUTMIX_ALPHA 1.0 "
    "TRAIN.MIXUP_MODE elem TRAIN.SMOOTHING 0.1 TRAIN.REPEATED_AUGMENT 2 TRAIN.WARMUP_STEPS 3"
).split()


def test_two_processes_train_alike_and_repeatably_with_all_augmentation(tmp_path):
    words = ["-epochs=1", "-batch_size=8", *EVERYTHING, "-accum_iter=2"]
    ways = {"first": words, "again": [*words, "DATA.NUM_WORKERS", "1"]}
    target = "support.trainings.small_runs:train"
    ranks = run_together({name: (target, (str(tmp_path / name), words)) for name, words in ways.items()})
    first, second = ranks["first"]
    assert len(first["losses"]) == 10 and np.isfinite(first["losses"]).all()
    for name, weights in first["weights"].items():
        np.testing.assert_array_equal(weights, second["weights"][name])
        assert (weights != first["initial"][name]).any()
    assert ranks["again"][0]["losses"] == first["losses"]
