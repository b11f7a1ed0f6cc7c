"""The points of docs/guides/extending.md are opened by each task as a run opens them."""

import re

import numpy as np
import pytest
from support.processes import ROOT

from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve

PAGE = (ROOT / "docs" / "guides" / "extending.md").read_text(encoding="utf-8")
(PROGRAM,) = re.findall(r"`things.py`:\n\n```python\n(.*?)```", PAGE, flags=re.DOTALL)
TASKS = {
    "semantic_segmentation": ["-dataset=tables", "MODEL.NAME", "minkunet_tutorial", "DATA.VOXEL_SIZE_M", "0.1"],
    "pointgroup": ["-dataset=tables", "MODEL.NAME", "pointgroup", "POINTS.INSTANCES.STUFF_CLASSES", "[table]"],
    "shape_classification": ["-dataset=objects", "MODEL.NAME", "mink_classifier14", "SHAPES.FEATURES", "[ones]"],
}


@pytest.mark.parametrize("name", TASKS)
def test_own_points_are_read_by_each_task(name, tmp_path, registered_names):
    exec(PROGRAM, {"__name__": "things"})
    task = resolve("task", name)(settings.load(["TASK", name, *TASKS[name]]).values)
    for split in ("train", "val"):
        samples = task.build_dataset(split, tmp_path)
        batch = [samples.sample(index, np.random.default_rng(index)) for index in (0, 1)]
        for sample in batch:
            task.check_sample(sample)
        assert len(task.collate(batch)["labels"]) == {"shape_classification": 2}.get(name, 6400)
        assert not [notice for notice in samples.notices if not notice.startswith("AP: ")]
    assert task.class_names == (["ball", "cube"] if "shape" in name else ["table", "ball", "cube"])
