"""Two processes end early together."""

from support.processes import run_main, succeeded
from support.runs import DIGITS, last_line

RUN = ["-batch_size=64", "VALIDATE_FREQ", "1", "TRAIN.WARMUP_EPOCHS", "0", "TRAIN.PATIENCE", "1"]


def test_two_processes_end_together_and_the_weights_can_be_evaluated(tmp_path):
    words = [*DIGITS, *RUN[1:], "-epochs=9", "-ngpus=2", "TRAIN.MIN_IMPROVEMENT", "100", f"-output={tmp_path}"]
    ended = succeeded(run_main(*words))
    assert "(last" in ended.out and "epoch 2)" in last_line(ended)
    scored = succeeded(run_main("-eval", *DIGITS, f"-pretrained={tmp_path}", f"-output={tmp_path / 'again'}"))
    assert last_line(scored).split(" loss")[0] in ended.out
