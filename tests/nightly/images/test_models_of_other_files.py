"""Networks that other people's files build, from a training in two processes to its exported model."""

import sys

import numpy as np
import paddle
import pytest
from support.hosts.paddleclas_clone import write_clone
from support.hosts.paddlevit_clone import write_family
from support.networks.timm_zoo import needs_compat
from support.processes import run_command, run_main
from support.trainings.runs import PLAIN, contents, last_line, refusal, well, write_images

TOOL = [sys.executable, "-m", "paddlevit_dist"]
# As VOLO: two outputs in training, one in evaluation.
FORWARD = "return (self.head(x), self.aux(x)) if self.training else self.head(x) + 0.5 * self.aux(x)"


@pytest.fixture(params=["paddlevit", "paddleclas", pytest.param("timm", marks=needs_compat)])
def source(request, tmp_path):
    """The words that choose the network, the variables that name its files, and what says so in the log."""
    if request.param == "timm":
        words = [PLAIN, "MODEL.NAME", "timm:test_efficientnet", "-image_size=32"]
        return words, {}, "model: timm:test_efficientnet"
    if request.param == "paddlevit":
        init = "self.aux = nn.Linear(dim, num_classes)"
        file = write_family(tmp_path / "PaddleViT", "apart", FORWARD, init=init)
        return [f"-cfg={file}"], {"PADDLEVIT": str(tmp_path / "PaddleViT")}, f"code of {file.parents[1]}, which is run"
    write_clone(tmp_path / "PaddleClas")
    words = [PLAIN, "MODEL.NAME", "paddleclas:Small_x1_0", "-image_size=16"]
    return words, {"PADDLECLAS": str(tmp_path / "PaddleClas")}, "input: 16 pixels, crop 0.8, bilinear"


def test_it_trains_resumes_bit_for_bit_evaluates_predicts_and_is_exported(source, tmp_path):
    words, variables, said = source
    images = write_images(tmp_path / "images")
    run = [*words, "-dataset=folder", f"-data_path={images}", "-batch_size=2", "-num_workers=0", "-epochs=2"]
    run += ["-ngpus=2", "-seed=3", "TRAIN.WARMUP_EPOCHS", "0", "TRAIN.BASE_LR", "1e-2", "REPORT", "False"]
    run += ["DATA.CROP_MODE", "center"]
    variables_of_training = variables if "PADDLECLAS" in variables else {}
    whole, broken = tmp_path / "whole", tmp_path / "broken"

    ended = well(run_main(*run, f"-output={whole}", **variables_of_training))
    well(run_main(*run, f"-output={broken}", "-stop_after_epoch=1", **variables_of_training))
    well(run_main(*run, f"-output={broken}", "-resume=auto", **variables_of_training))

    assert said in ended.out
    weights = "checkpoints/epoch_0002/model.pdparams"
    assert contents(whole)[weights] == contents(broken)[weights]

    evaluate = ["-eval", f"-data_path={images}", f"-pretrained={whole}", f"-output={tmp_path}/evaluated", "-ngpus=1"]
    scored = well(run_main(f"-cfg={whole}/config.yaml", *evaluate, **variables_of_training))
    assert last_line(scored).split(" (")[0] == last_line(ended).split(" (")[0]
    command = [*TOOL, "predict", str(whole), str(images / "val"), f"-output={tmp_path}/predicted"]
    if "PADDLEVIT" in variables:  # weights alone have no code run
        assert "set PADDLEVIT=" in refusal(run_command(command))
    well(run_command(command, **variables))
    exported = tmp_path / "exported"
    well(run_command([*TOOL, "export", str(whole), str(exported)], **variables))
    saved = np.load(f"{exported}.example.npz")
    function = paddle.jit.load(str(exported))
    np.testing.assert_allclose(function(paddle.to_tensor(saved["input"])).numpy(), saved["output"], atol=1e-5)
