"""A run of two processes that diverges says where."""

from support.runs import DIGITS, refused

from paddlevit_dist import settings as configuration


def test_a_run_that_diverges_says_where(tmp_path):
    """A rate of 1e20 makes weights of 1e20; the first norm squares what comes of them beyond float32."""
    message = refused(f"-output={tmp_path / 'output'}", *DIGITS, "TRAIN.BASE_LR", "1e20", "-ngpus=2")
    assert "update 6 in epoch 1 is not finite, nor were the 4 before" in message
    assert "the output of layer 'blocks.0." in message
    said = (tmp_path / "output" / "log.txt").read_text()
    assert "rank 0, micro-batch 0: " in said and "also in rank 1, micro-batch 0: " in said and "layer_norm" in said


def test_what_is_gone_says_what_to_use_and_old_files_stay_readable(tmp_path):
    assert "-replay is gone: a run that ends" in refused("-replay=x.json")
    assert "REPLAY is gone: a run that ends" in refused(*DIGITS, "REPLAY", "x.json")
    file = tmp_path / "config.yaml"
    file.write_text("REPLAY: null\nSEED: 3\n")
    assert configuration.load([f"-cfg={file}"]).values.SEED == 3
