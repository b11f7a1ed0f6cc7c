"""-selftest passes where nothing depends on the number of processes, and names the tensor where something does."""

import pytest
from integration.core.distributed.selftests import GRAY, OTHERS, selftest
from support.processes import ROOT
from support.trainings.runs import DIGITS, PLAIN

from paddlevit_dist.core.checkpoint.array_files import write_safetensors
from paddlevit_dist.core.tasks.model_factory import create_model

ROOMS = ROOT / "configs" / "minkunet14_synthetic_rooms.yaml"


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["MODEL.NAME", "WithNoise"], "loss term 'loss' of update 1"),
        (["MODEL.NAME", "WithBuffer"], "'seen' is not the same on rank 0 and rank 1 after update 1"),
        (["MODEL.NAME", "WithLeftOutRank"], "gradient of 'head.weight' in update 1"),
        (["MODEL.NAME", "Linear", "TASK", "of_bright_images"], "loss term 'loss' of update 1"),
    ],
    ids=["noise of each rank", "buffer of each rank", "a rank left out", "unweighted average"],
)
def test_what_depends_on_the_ranks_fails_by_name(tmp_path, arguments, said):
    ended = selftest(tmp_path / "output", PLAIN, *OTHERS, *GRAY, *arguments)
    assert ended.code == 1 and ended.out.splitlines()[-1] == "FAIL", ended.out + ended.err
    failed = ended.out.split("FAIL: 2 processes x 32", 1)[1]
    assert said in failed.splitlines()[1 if said.startswith(("loss", "gradient")) else 0]


def test_the_same_model_without_its_fault_passes(tmp_path):
    ended = selftest(tmp_path / "output", PLAIN, *OTHERS, *GRAY, "MODEL.NAME", "Linear")
    assert ended.code == 0 and ended.out.splitlines()[-1] == "PASS", ended.out + ended.err


def test_a_sparse_network_passes_without_accumulation(tmp_path):
    ended = selftest(tmp_path / "output", f"-cfg={ROOMS}", "-num_workers=0")
    assert ended.code == 0 and ended.out.splitlines()[-1] == "PASS", ended.out + ended.err
    assert "not compared: 1 process x 1 x 2 accumulated: batch norm" in ended.out
    assert "TRAIN.LOVASZ_WEIGHT 0.5" in ended.out


def test_a_vision_transformer_passes_also_from_weights(tmp_path):
    options = {"image_size": 16, "patch_size": 8, "in_channels": 1, "embed_dim": 16, "depth": 1, "num_heads": 2}
    weights = {
        name: value.numpy() for name, value in create_model("vit", num_classes=10, **options).state_dict().items()
    }
    write_safetensors(tmp_path / "vit.safetensors", weights)
    rates = ["MODEL.DROPPATH", "0.3", "TRAIN.MIXUP_ALPHA", "0.8"]
    ended = selftest(tmp_path / "output", *DIGITS, f"-pretrained={tmp_path / 'vit.safetensors'}", *rates)
    lines = ended.out.splitlines()
    assert ended.code == 0 and lines[-1] == "PASS", ended.out + ended.err
    assert {"  2 processes x 32", "  1 process x 64", "  1 process x 32 x 2 accumulated"} <= set(lines)
    (off,) = [line for line in lines if line.startswith("off")]
    assert "TRAIN.MIXUP_ALPHA 0.8" in off and "MODEL.DROPPATH 0.3" in off
    assert sum("tensors agree" in line for line in lines) == 2
