"""EoMT's recipes have the values of the authors' configurations."""

import numpy as np
import pytest
from support.networks.golden_eomt import GOLDEN
from support.processes import ROOT

from paddlevit_dist.core import settings
from paddlevit_dist.images.mask_queries.annealing import list_annealing

FILES = GOLDEN["training"]["recipes"]["files"]
BLOCKS = {"small": 3, "base": 3, "large": 4, "giant": 5}
UPDATES = {"coco": 7391, "ade20k": 1263, "cityscapes": 185}  # of an epoch of theirs


@pytest.mark.parametrize("file", FILES)
def test_golden_eomt_recipe(file):
    """``file``: family, data, task, and size with the side of images, such as eomt_large_640.yaml."""
    about = FILES[file]
    family, data, kind, name = file.removesuffix(".yaml").split("/")
    size, side = name.split("_")[1:3]
    tag = f"{'_dinov3' if family == 'dinov3' else ''}_{data}_{kind}_{'_'.join(name.split('_')[1:])}"
    values = settings.load([f"-cfg={ROOT / 'configs' / f'eomt{tag}.yaml'}"]).values
    train, options = values.TRAIN, values.MODEL.OPTIONS or {}
    steps = [*zip(about["attn_mask_annealing_start_steps"], about["attn_mask_annealing_end_steps"])]
    assert len(steps) == int(about.get("num_blocks", 4)) == BLOCKS[size]
    courses = list_annealing(options.get("annealing"), len(steps))
    assert all(course.is_share for course in courses)  # of any data set
    # The default is within half a percent of theirs, and no recipe writes it.
    total, most = UPDATES[data] * int(about["max_epochs"]), 1e-4 if "annealing" in options else 0.005
    np.testing.assert_allclose([course[:2] for course in courses], np.array(steps) / total, rtol=0, atol=most)
    default = [course[:2] for course in list_annealing(None, len(steps))]
    assert "annealing" not in options or not np.allclose(np.array(steps) / total, default, rtol=0, atol=0.005)
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
