"""Tasks of users that are derived from registered ones: they get what the task that they are derived from gets."""

import sys
from types import SimpleNamespace

import pytest
from support.refusals import refusal_of
from support.registrations import forgotten

from paddlevit_dist import Key, register_task
from paddlevit_dist.core import settings
from paddlevit_dist.core.registry import lookup
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.settings import DEFAULT_RECIPE, key_tables
from paddlevit_dist.core.settings.table import leaves
from paddlevit_dist.core.tasks.task import Task

PARENTS = sorted(REGISTRY.task_tables)
SHIFT, SCALE = Key("MINE.SHIFT", 1, "int", "shift"), Key("MINE.SCALE", 2.0, "float", "scale")


class OfNobody(Task):
    """Derived from no registered task."""

    build_dataset = collate = build_model = train_step = build_metrics = eval_step = print


@pytest.fixture(autouse=True)
def own_names():
    with forgotten():
        yield


def derive(parent: str, name: str = "derived", **facts):
    cls = type(name.capitalize(), (lookup.resolve("task", parent),), {**facts})
    register_task(name, cls)
    return cls


def values_of(task: str, *words: str) -> dict[str, object]:
    values = leaves(settings.load([*words, "TASK", task]).values)
    assert values.pop("TASK") == task
    return values


def test_an_empty_subclass_of_each_task_has_the_configuration_of_its_parent():
    for parent in PARENTS:
        derive(parent, f"derived_{parent}")
        assert values_of(f"derived_{parent}") == values_of(parent), parent
    recipes = ["segformer_b0_shapes", "detr_shapes", "multi_digits"]
    for recipe in recipes:
        configured = settings.load([f"-cfg={recipe}"], DEFAULT_RECIPE).values
        ours = settings.load([f"-cfg={recipe}", "TASK", f"derived_{configured.TASK}"], DEFAULT_RECIPE).values
        assert {**leaves(ours), "TASK": None} == {**leaves(configured), "TASK": None}, recipe


def test_a_key_that_the_parent_does_not_read_is_refused_as_there():
    derive("image_segmentation")
    messages = [
        refusal_of(settings.load, ["TASK", task, "POINTS.ROOMS.TRAIN", "3"])
        for task in ("image_segmentation", "derived")
    ]
    assert messages[1] == messages[0].replace("by image_segmentation:", "by derived:") != messages[0]
    assert values_of("derived", "DATA.EVAL_SHORTEST_SIDE", "None")["DATA.EVAL_SHORTEST_SIDE"] is None


def test_tables_and_keys_come_down_a_line_of_subclasses(monkeypatch):
    first = type("First", (lookup.resolve("task", "multi_label"),), {})
    register_task("first", first, keys=[SHIFT])
    second = type("Second", (first,), {"keys": [SCALE]})
    register_task("second", second)
    monkeypatch.setitem(sys.modules, "own_third", SimpleNamespace(Third=type("Third", (second,), {"keys": None})))
    register_task("third", "own_third:Third")
    own = {"MINE.SHIFT": 1, "MINE.SCALE": 2.0}
    assert values_of("third") == values_of("second") == {**values_of("multi_label"), **own}
    assert [lookup.find_built_in(name) for name in ("third", "multi_label", "nobody")] == ["multi_label"] * 2 + [None]
    assert lookup.annotation_type("task", "third") == lookup.annotation_type("task", "multi_label") is not None

    register_task("first", first, [], keys=[SHIFT], replace=True)
    readable = {key.name for table in key_tables.key_tables("third") for key in table.keys}
    assert readable == {key.name for table in key_tables.common_tables() for key in table.keys} | own.keys()


def test_a_class_under_another_name_reads_what_it_reads_and_one_of_nobody_all():
    register_task("again", lookup.resolve("task", "keypoint_heatmaps"))
    assert values_of("again") == values_of("keypoint_heatmaps")
    register_task("of_nobody", OfNobody)
    values = values_of("of_nobody", "POINTS.ROOMS.TRAIN", "3")
    assert values["POINTS.ROOMS.TRAIN"] == 3 and values["DATA.EVAL_SHORTEST_SIDE"] is None
    assert values["DATA.IMAGENET_MEAN"] == [0.5] * 3
