"""The volumes of docs/guides/extending.md are opened by each task as a run opens them."""

import re

import numpy as np
import pytest
from support.processes import ROOT

from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve

PAGE = (ROOT / "docs" / "guides" / "extending.md").read_text(encoding="utf-8")
(PROGRAM,) = re.findall(r"`scans.py`:\n\n```python\n(.*?)```", PAGE, flags=re.DOTALL)
TASKS = {
    "volume_segmentation": ["-dataset=balls", "VOLUMES.NORMALIZE", "percentiles"],
    "landmarks": ["-dataset=centers", "VOLUMES.FLIP", "0"],
}


@pytest.mark.parametrize("name", TASKS)
def test_own_volumes_are_read_by_each_task(name, tmp_path, registered_names):
    exec(PROGRAM, {"__name__": "scans"})
    options = ["MODEL.NAME", "unet3d", "VOLUMES.CROP_SIZE", "[8,16,16]", *TASKS[name]]
    task = resolve("task", name)(settings.load(["TASK", name, *options]).values)
    for split, shape in (("train", (1, 8, 16, 16)), ("val", (1, 16, 32, 32))):
        samples = task.build_dataset(split, tmp_path)
        for index in range(2):
            sample = samples.sample(index, np.random.default_rng(index))
            task.check_sample(sample)
            assert sample["volume"].shape == shape
        assert not [notice for notice in samples.notices if "nnU-Net" not in notice]
        if name == "landmarks" and split == "val":
            np.testing.assert_allclose(sample["points"][1] - sample["points"][0], [4, 0, 0], atol=1e-5)
        elif split == "val":
            assert np.unique(sample["labels"]).tolist() == [0, 1] and sample["labels"].shape == shape[1:]
    assert task.spacing.tolist() == [2, 1, 1]
