"""A run of two processes that diverges says where."""

from support.trainings.runs import DIGITS, refused


def test_a_run_that_diverges_says_where(tmp_path):
    """A rate of 1e20 makes weights of 1e20; the first norm squares what comes of them beyond float32."""
    message = refused(f"-output={tmp_path / 'output'}", *DIGITS, "TRAIN.BASE_LR", "1e20", "-ngpus=2")
    assert "update 6 in epoch 1 is not finite, nor were the 4 before" in message
    assert "the output of layer 'blocks.0." in message
    said = (tmp_path / "output" / "log.txt").read_text()
    assert "rank 0, micro-batch 0: " in said and "also in rank 1, micro-batch 0: " in said and "layer_norm" in said
