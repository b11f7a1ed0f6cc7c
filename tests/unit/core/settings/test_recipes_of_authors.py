"""Recipes of real-time detectors against their authors' YAML files: what differs is named in a header.

Source of the facts: lyuwenyu/RT-DETR, rtdetr_pytorch/configs and rtdetrv2_pytorch/configs, Peterande/D-FINE,
configs, and Intellindust-AI-Lab/DEIM, configs, with the files that they include.
"""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from paddlevit_dist.core.settings import load, recipes


class AuthorsFacts(NamedTuple):
    """What an authors' file sets: rates, counts of updates and epochs, and which parameters decay."""

    batch: int
    epochs: int
    rate: float
    backbone_rate: float
    warmup: int
    decay: float
    average_warmup: int
    plain_epochs: int
    sides: int  # how often 640 is among the sides of batches; 0: it is the only one
    biases_decay: bool
    norms_decay: bool = False


AUTHORS = {
    "rtdetr_r18vd_coco": AuthorsFacts(16, 72, 1e-4, 1e-5, 0, 1e-4, 2000, 0, 3, False),
    "rtdetr_r34vd_coco": AuthorsFacts(16, 72, 1e-4, 1e-5, 0, 1e-4, 2000, 0, 3, False),
    "rtdetr_r50vd_coco": AuthorsFacts(16, 72, 1e-4, 1e-5, 0, 1e-4, 2000, 0, 3, False),
    "rtdetr_r101vd_coco": AuthorsFacts(16, 72, 1e-4, 1e-6, 0, 1e-4, 2000, 0, 3, True, True),
    "rtdetrv2_r18vd_coco": AuthorsFacts(16, 120, 1e-4, 1e-4, 2000, 1e-4, 2000, 3, 0, True),
    "rtdetrv2_r34vd_coco": AuthorsFacts(16, 120, 1e-4, 5e-5, 2000, 1e-4, 2000, 3, 3, False),
    "rtdetrv2_r50vd_coco": AuthorsFacts(16, 72, 1e-4, 1e-5, 2000, 1e-4, 2000, 1, 3, True),
    "rtdetrv2_r101vd_coco": AuthorsFacts(16, 72, 1e-4, 1e-6, 2000, 1e-4, 2000, 1, 3, True),
    "dfine_n_coco": AuthorsFacts(128, 160, 8e-4, 4e-4, 500, 1e-4, 1000, 12, 0, False),
    "dfine_s_coco": AuthorsFacts(32, 132, 2e-4, 1e-4, 500, 1e-4, 1000, 12, 20, False),
    "dfine_m_coco": AuthorsFacts(32, 132, 2e-4, 2e-5, 500, 1e-4, 1000, 12, 6, False),
    "dfine_l_coco": AuthorsFacts(32, 80, 2.5e-4, 1.25e-5, 500, 1.25e-4, 1000, 8, 4, True),
    "dfine_x_coco": AuthorsFacts(32, 80, 2.5e-4, 2.5e-6, 500, 1.25e-4, 1000, 8, 3, True),
}
DEIM = {
    "deim_dfine_n_coco": AuthorsFacts(128, 160, 8e-4, 4e-4, 2000, 1e-4, 1000, 12, 0, False),
    "deim_dfine_s_coco": AuthorsFacts(32, 132, 4e-4, 2e-4, 2000, 1e-4, 1000, 12, 20, True),
    "deim_dfine_m_coco": AuthorsFacts(32, 102, 4e-4, 4e-5, 2000, 1e-4, 1000, 12, 6, True),
    "deim_dfine_l_coco": AuthorsFacts(32, 58, 5e-4, 2.5e-5, 2000, 1.25e-4, 1000, 8, 4, True, True),
    "deim_dfine_x_coco": AuthorsFacts(32, 58, 5e-4, 5e-6, 2000, 1.25e-4, 1000, 8, 3, True, True),
    "deim_rtdetrv2_r18vd_coco": AuthorsFacts(16, 120, 2e-4, 2e-4, 2000, 1e-4, 2000, 3, 0, True),
    "deim_rtdetrv2_r34vd_coco": AuthorsFacts(16, 120, 2e-4, 1e-4, 2000, 1e-4, 2000, 3, 3, True),
    "deim_rtdetrv2_r50vd_m_coco": AuthorsFacts(16, 60, 2e-4, 2e-5, 2000, 1e-4, 2000, 2, 3, True),
    "deim_rtdetrv2_r50vd_coco": AuthorsFacts(16, 60, 2e-4, 2e-5, 2000, 1e-4, 2000, 2, 3, True),
    "deim_rtdetrv2_r101vd_coco": AuthorsFacts(16, 60, 2e-4, 2e-6, 2000, 1e-4, 2000, 2, 3, True),
}
HEADER = Path(recipes.recipe_folder(), "_base_", "rtdetr_coco.yaml").read_text(encoding="utf-8").partition("\nDATA:")[0]


def differences(name: str, authors: AuthorsFacts) -> set[str]:
    """What a recipe has otherwise than its authors' file."""
    values: Any = load([f"-cfg={name}"]).values
    data, train = values.DATA, values.TRAIN
    ours = AuthorsFacts(
        data.BATCH_SIZE * train.ACCUM_ITER * 4,
        train.NUM_EPOCHS,
        train.BASE_LR,
        pytest.approx(train.BASE_LR * train.BACKBONE_LR_FACTOR),
        train.WARMUP_STEPS,
        train.WEIGHT_DECAY,
        train.MODEL_EMA_WARMUP,
        data.NO_AUGMENT_EPOCHS,
        data.BATCH_SIDES.count(640),
        train.DECAY_ALL_PARAMETERS,
        train.DECAY_ALL_PARAMETERS,
    )
    assert (train.MODEL_EMA_DECAY, train.GRAD_CLIP, train.BATCH_NORM) == (0.9999, 0.1, "sync")
    return {field for field in ours._fields if getattr(ours, field) != getattr(authors, field)}


@pytest.mark.parametrize("name", AUTHORS)
def test_a_recipe_has_the_numbers_of_its_authors_or_its_header_names_the_difference(name):
    found, model = differences(name, AUTHORS[name]), name.removesuffix("_coco")
    warmups, decay = HEADER[HEADER.index("- RT-DETR warms") :].split("\n# - ")[:2]

    assert found <= {"warmup", "biases_decay", "norms_decay"}
    if "warmup" in found:
        assert model.startswith("rtdetr_") and "no warm-up" in warmups
    of_biases, of_norms = decay.split("biases and norms in")
    assert ("biases_decay" in found) == (model in of_biases or model in of_norms)
    assert ("norms_decay" in found) == (model in of_norms)


@pytest.mark.parametrize("name", DEIM)
def test_a_recipe_of_deim_has_the_numbers_of_its_authors_but_no_decay_of_biases_and_norms(name):
    authors = DEIM[name]
    decaying = {field for field in ("biases_decay", "norms_decay") if getattr(authors, field)}

    assert differences(name, authors) == decaying


def test_the_rate_of_fine_tuning_is_the_share_of_the_authors_that_its_header_names():
    values = load(["-cfg=finetune_detector", "-data_path=."]).values
    authors = AuthorsFacts(64, 220, 4e-4, 2e-4, 500, 1e-4, 1000, 20, 20, False)  # dfine_hgnetv2_s_custom.yml
    text = " ".join(Path(recipes.find_file("finetune_detector")).read_text(encoding="utf-8").replace("#", " ").split())

    assert values.TRAIN.BASE_LR / authors.rate == values.DATA.GLOBAL_BATCH_SIZE / authors.batch == 1 / 4
    assert values.TRAIN.BASE_LR * values.TRAIN.BACKBONE_LR_FACTOR == pytest.approx(authors.backbone_rate / 4)
    assert "a quarter of their rates, as the batch is a quarter of theirs: 16 of 64" in text
    assert (values.TRAIN.WARMUP_STEPS, authors.warmup) == (200, 500) and "200 updates for 500" in text
    assert values.DATA.BATCH_SIDES.count(640) == 3 and "640 pixels in 3 of 13 updates for 20 of 30" in text
