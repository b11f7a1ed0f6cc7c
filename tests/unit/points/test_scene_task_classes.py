"""Points of a user whose class does not say which classes there are."""

import numpy as np
import pytest
from support.refusals import refusal_of
from support.registrations import forgotten

from paddlevit_dist import register_dataset
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.points import SceneDataset, ShapeDataset

RECIPES = {
    "minkunet_tutorial": SceneDataset,
    "pointgroup_synthetic_rooms": SceneDataset,
    "mink_classifier_solids": ShapeDataset,
}


def open_own(recipe, words=(), **attributes):
    base = RECIPES[recipe]
    sample = {"xyz": np.zeros((4, 3)), **({"name": "one"} if base is SceneDataset else {"label": 1})}
    methods = {"__len__": lambda self: 3, "read": lambda self, index: sample, "__module__": "own", **attributes}
    with forgotten():
        register_dataset("own", type("Own", (base,), methods))
        stuff = ["POINTS.INSTANCES.STUFF_CLASSES", "[]"] if "pointgroup" in recipe else []
        task = make_task(settings.load([f"-cfg={recipe}", "-dataset=own", *stuff, *words]).values)
        task.build_dataset("val", None)
        return task.class_names


@pytest.mark.parametrize("recipe", RECIPES)
def test_data_without_classes_are_refused_unless_a_key_gives_their_number(recipe):
    said = "dataset own does not say which classes it has: give its class an attribute class_names, or num_classes if "
    assert refusal_of(open_own, recipe).startswith(said)
    assert refusal_of(open_own, recipe, classes=["a", "b"]).endswith("(it has classes, which is not read)")
    assert open_own(recipe, class_names=["a", "b"]) == ["a", "b"]
    assert open_own(recipe, num_classes=2) == open_own(recipe, ["-num_classes=2"]) == ["0", "1"]
