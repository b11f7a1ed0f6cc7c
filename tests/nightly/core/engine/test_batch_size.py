"""The batch size that trials find is that of the rank with the least memory, and trials leave no trace in the run."""

import pytest
from integration.core.distributed.resumed_runs import accumulators, assert_bit_equal, weights
from support.processes import ROOT
from support.trainings.runs import IMAGES, run_main, well, write_images

LIMITED = f"-import={ROOT / 'tests' / 'support' / 'trainings' / 'limited_memory.py'}"
RUN = [*(word for word in IMAGES if not word.startswith(("-batch_size", "-epochs"))), "-epochs=2", "MODEL.DROPOUT"]
RUN += ["0.1", "TRAIN.MODEL_EMA", "True", "REPORT", "False"]
LIMITS = {1: {"LARGEST_BATCH": "3"}, 2: {"LARGEST_BATCH": "4", "LARGEST_BATCH_OF_THE_LAST": "2"}}


@pytest.mark.parametrize("processes", LIMITS)
def test_a_run_with_a_found_batch_is_bit_equal_to_one_with_that_batch_given(tmp_path, processes):
    """It finds 2 of 4, stops after an epoch and is resumed; the other one runs straight."""
    data, output, by_hand = f"-data_path={write_images(tmp_path / 'data')}", tmp_path / "auto", tmp_path / "by_hand"
    words = [*RUN, data, f"-ngpus={processes}"]
    auto = [f"-output={output}", *words, "-batch_size=auto", "DATA.BATCH_SIZE", "4"]
    ended = well(run_main(*auto, LIMITED, "-stop_after_epoch=1", **LIMITS[processes]))
    found = "DATA.BATCH_SIZE 2, TRAIN.ACCUM_ITER 2, DATA.BATCH_SIZE_EVAL 2"
    assert f"of 4 images per device and update, the largest batch that fits; 4 exceeds the memory: {found}" in ended.out
    ended = well(run_main(*auto, "-resume=auto"))  # a trial here would be refused: a CPU has no memory to run out of
    assert f"as in the run that is resumed: {found}" in ended.out
    well(run_main(f"-output={by_hand}", *words, "-batch_size=2", "-accum_iter=2"))
    for name in ("model.pdparams", "model_ema.pdparams"):
        assert_bit_equal(weights(output, file=name), weights(by_hand, file=name))
    assert_bit_equal(accumulators(output), accumulators(by_hand))
