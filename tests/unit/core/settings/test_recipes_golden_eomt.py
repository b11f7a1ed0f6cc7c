"""EoMT's recipes have the values of the authors' configurations."""

import pytest
from support.networks.golden_eomt import GOLDEN
from support.processes import ROOT

from paddlevit_dist.core import settings

FILES = GOLDEN["training"]["recipes"]["files"]
BLOCKS = {"small": 3, "base": 3, "large": 4, "giant": 5}


@pytest.mark.parametrize("file", FILES)
def test_golden_eomt_recipe(file):
    """``file``: family, data, task, and size with the side of images, such as eomt_large_640.yaml."""
    about = FILES[file]
    family, data, kind, name = file.removesuffix(".yaml").split("/")
    size, side = name.split("_")[1:3]
    tag = f"{'_dinov3' if family == 'dinov3' else ''}_{data}_{kind}_{'_'.join(name.split('_')[1:])}"
    values = settings.load([f"-cfg={ROOT / 'configs' / f'eomt{tag}.yaml'}"]).values
    train, options = values.TRAIN, values.MODEL.OPTIONS
    steps = zip(about["attn_mask_annealing_start_steps"], about["attn_mask_annealing_end_steps"])
    assert [list(pair) for pair in options["annealing"]] == [list(pair) for pair in steps]
    assert len(options["annealing"]) == int(about.get("num_blocks", 4)) == BLOCKS[size]
    assert options.get("num_queries", 200) == int(about["num_q"])
    assert options.get("decay_last_blocks", True) == (about.get("llrd_l2_enabled", "True") == "True")
    assert train.NUM_EPOCHS == int(about["max_epochs"]) and train.BASE_LR == float(about.get("lr", 1e-4))
    assert train.LAYER_DECAY == float(about.get("llrd", 0.8))
    assert [train.WARMUP_STEPS, train.BACKBONE_WARMUP_STEPS] == about.get("warmup_steps", [500, 1000])
    assert (train.WEIGHT_DECAY, train.GRAD_CLIP, train.LR_SCHEDULER.POWER) == (0.05, 0.01, 0.9)
    assert train.DECAY_ALL_PARAMETERS and 4 * values.DATA.BATCH_SIZE == 16
    found = {
        "panoptic": lambda: list(values.PANOPTIC.INPUT_SIZE),
        "semantic": lambda: list(values.DATA.CROP_SIZE),
        "instance": lambda: [values.DATA.SHORTEST_SIDES[0], values.DATA.EVAL_LONGEST_SIDE],
    }[kind]()
    assert found == [int(side)] * 2 == about.get("img_size", found)
