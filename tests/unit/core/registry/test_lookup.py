"""Names and what the registry knows of each."""

import multiprocessing
import sys
from types import SimpleNamespace

import pytest
from support.refusals import refusal_of
from support.registrations import forgotten

from paddlevit_dist import UserError
from paddlevit_dist.core.registry import lookup, plugins
from paddlevit_dist.core.registry.lookup import as_source, list_models
from paddlevit_dist.core.registry.manifest import Manifest
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.registry.register import register_dataset, register_model, register_task, register_transform
from paddlevit_dist.core.runtime.environment import program
from paddlevit_dist.core.settings import key_tables
from paddlevit_dist.core.settings.key import Key
from paddlevit_dist.core.tasks import Model

FOLD = Key("DATA.MINE.FOLD", 0, "int", "which part is for validation")
NOISE = Key("MODEL.NOISE", 1, "int", "pixels of noise")


class Mine:
    """A class of a user."""


class OfNobody:
    """Another one."""


class MyModel(Model):
    """A network of a user."""

    def forward(self): ...


@pytest.fixture(autouse=True)
def own_names(monkeypatch):
    monkeypatch.setattr(plugins, "_installed_are_loaded", True)
    with forgotten():
        yield


def refuse(kind: str, name: str) -> str:
    return refusal_of(lookup.find_name, kind, name)


def test_sets_that_need_no_path_are_those_that_are_drawn_and_the_digits():
    assert sorted(filter(lookup.is_bundled, REGISTRY.datasets)) == [
        *("digits", "drawn_figures", "multi_digits", "panoptic_shapes", "segmentation_shapes"),
        *("synthetic_landmarks", "synthetic_organs", "synthetic_rooms", "synthetic_shapes", "synthetic_solids"),
    ]


def test_an_unknown_name_is_told_with_the_closest_and_all_valid_ones(monkeypatch):
    assert refuse("task", "segmentation").startswith(
        "task 'segmentation' is not known: did you mean 'image_segmentation', 'volume_segmentation' or "
        "'panoptic_segmentation'? valid names: classification, detection, image_segmentation, "
    )
    assert "task 'detections' is not known: did you mean 'detection'? valid" in refuse("task", "detections")
    assert "task 'yolo' is not known: valid names: classification, " in refuse("task", "yolo")
    assert refuse("model", "vit_tinny").endswith("inspect --list' lists all; import your own with -import=MODULE")
    assert refuse("model", "pit_b") == (
        "model 'pit_b': not here: give the file of your clone of PaddleViT: "
        f"-cfg=PaddleViT/image_classification/*/configs/*.yaml; '{program('inspect')} --list' lists all"
    )
    assert refuse("transform", "blur") == (
        "transform 'blur' is not known: none is registered: add one with register_transform; import your own with "
        "-import=MODULE"
    )
    register_transform("blurred", Mine)
    assert "did you mean 'blurred'? valid names: blurred; " in refuse("transform", "blur")
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: 7)
    assert refuse("task", "mine").endswith("name the file with IMPORTS=['my_things.py'] (-import=my_things.py)")


def test_a_model_of_another_package_is_known_once_it_is_named(monkeypatch):
    monkeypatch.setitem(REGISTRY.bridges, "timm", "somewhere:Timm")
    assert lookup.find_name("model", "TIMM:Net_2.tag_a.b") == "timm:Net_2"
    assert REGISTRY.models["timm:Net_2"] == "somewhere:Timm"
    assert lookup.find_name("model", "paddle:Net.b") == "paddle:Net.b"
    for name in ("timm:", "nobody:net"):
        assert refuse("model", name).startswith(f"model '{name}' is not known: ")
    assert "timm:Net_2" not in list_models() and "nobody:net" not in REGISTRY.models
    with pytest.raises(
        UserError, match="models of 'nobody:' cannot be listed: expected one of paddle, paddleclas, timm"
    ):
        list_models("Nobody:*")


def test_a_model_that_a_user_registers_with_the_name_of_a_source_stays():
    register_model("timm:mine", MyModel, replace=True)
    assert lookup.find_name("model", "timm:mine") == "timm:mine" and REGISTRY.models["timm:mine"] is MyModel


def test_names_of_a_plugin_are_found_when_they_are_needed(monkeypatch):
    calls = []

    def load_once():
        calls.append(len(calls))
        register_dataset("of_a_plugin", Mine)
        return len(calls) == 1

    monkeypatch.setattr(plugins, "load_installed", load_once)
    assert lookup.find_name("dataset", "folder") == "folder" and not calls
    assert lookup.find_name("dataset", "Of-a-Plugin") == "of_a_plugin" and calls == [0]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("resnet18.a1_in1k", "hf:timm/resnet18.a1_in1k"),
        ("owner/net", "hf:owner/net"),
        ("a/b/net", "a/b/net"),
        ("hf:owner/net", "hf:owner/net"),
        ("./net", "./net"),
        ("~/net", "~/net"),
        ("/net", "/net"),
        ("owner/net.pth", "owner/net.pth"),
        ("here", "here"),
    ],
)
def test_a_name_of_weights_is_completed(name, source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").touch()
    assert as_source(name) == source


def test_each_built_in_name_has_its_package_and_annotations():
    assert lookup.find_package("dataset", "scannet") == "points" and lookup.find_package("dataset", "nobody") is None
    named = [("task", "detection"), ("task", "image_segmentation"), ("dataset", "folder"), ("model", "fcn_resnet50")]
    assert [lookup.annotation_type(*name) for name in named] == [
        *("images with boxes", "images with label maps", "images", "images with label maps"),
    ]
    assert [lookup.annotation_type("dataset", name) for name in ("coco", "ade20k", "scannet", "nobody")] == [
        *("images with boxes", "images with label maps", None, None),
    ]
    assert lookup.annotation_types("dataset", "coco") == ["images with boxes"]
    register_dataset("mine", Mine)
    assert lookup.find_package("dataset", "mine") is lookup.annotation_type("dataset", "mine") is None


def test_a_data_set_in_two_manifests_has_the_annotations_of_each(monkeypatch):
    monkeypatch.setattr(REGISTRY, "annotations", {})
    with forgotten():
        for annotations in ("images", "images with several labels"):
            REGISTRY.add(Manifest("acme", datasets={"acme_table": ".tables:Table"}, annotations=annotations))
        assert lookup.annotation_types("dataset", "acme_table") == ["images", "images with several labels"]
        assert lookup.annotation_type("dataset", "acme_table") == "images"
        assert lookup.list_names("dataset", "images with several labels") == ["acme_table"]


def test_a_data_set_is_guessed_for_what_the_task_reads(monkeypatch):
    calls = []
    monkeypatch.setitem(REGISTRY.functions, "guess_dataset", lambda *words: calls.append(words))
    lookup.guess_dataset("/data", "detection")
    lookup.guess_dataset("/data", "semantic_segmentation")
    lookup.guess_dataset("/data")
    assert calls == [("/data", "images with boxes"), ("/data", None), ("/data", None)]
    monkeypatch.setitem(REGISTRY.functions, "guess images with keypoints", lambda path: f"points at {path}")
    assert lookup.guess_dataset("/data", "keypoint_detection") == "points at /data" and len(calls) == 3


# Tables of keys


def names(tables) -> set[str]:
    return {key.name for table in tables for key in table.keys}


def test_a_run_reads_the_tables_of_its_task_its_data_set_and_its_model():
    register_dataset("mine", Mine, keys=FOLD)
    register_model("noisy", "somewhere:Noisy", keys=NOISE)
    assert not names(key_tables.key_tables("detection")) & {"DATA.MINE.FOLD", "MODEL.NOISE"}
    assert names(key_tables.key_tables("detection", "mine")) - names(key_tables.key_tables("detection")) == {
        "DATA.MINE.FOLD"
    }
    assert "MODEL.NOISE" in names(key_tables.key_tables("detection", "mine", "noisy"))
    assert (
        names(key_tables.key_tables()) == names(key_tables.key_tables("of_nobody")) == names(key_tables.known_tables())
    )
    assert names(key_tables.key_tables()) >= {"DATA.MINE.FOLD", "MODEL.NOISE", "PROBE.KNN_K", "TRAIN.NUM_EPOCHS"}
    known = names(key_tables.known_tables("detection"))
    assert known == names(key_tables.key_tables("detection")) | {"DATA.MINE.FOLD", "MODEL.NOISE"}
    engine = key_tables.key_tables("detection")[0]
    assert "TRAIN.NUM_EPOCHS" in names([engine]) and key_tables.common_tables()[0] is engine


def test_a_task_of_a_user_reads_its_own_tables_and_a_configuration_of_it_all():
    register_task("few", Mine, ["paddlevit_dist.images.settings:IMAGES"], keys=[FOLD])
    register_task("all", OfNobody)
    few, common = names(key_tables.key_tables("few")), names(key_tables.common_tables())
    assert (
        "DATA.MINE.FOLD" in few and "DATA.IMAGENET_MEAN" in few and len(few) < len(names(key_tables.key_tables("all")))
    )
    assert common < few
    assert names(key_tables.known_tables("few")) == names(key_tables.key_tables())
    register_task("few", Mine, replace=True)
    assert names(key_tables.key_tables("few")) == names(key_tables.key_tables())


def test_who_reads_a_key_is_found():
    register_dataset("mine", Mine, keys=FOLD)
    assert key_tables.find_readers("DATA.MINE.FOLD") == [("dataset", "mine")]
    assert key_tables.find_readers("PROBE.KNN_K") == [("task", "linear_probe"), ("task", "knn_probe")]
    assert key_tables.find_readers("NO.KEY") == key_tables.find_readers("TRAIN.NUM_EPOCHS") == []


def test_every_table_comes_once_and_those_of_every_run_first():
    tables = list(key_tables.iterate_tables())
    assert len({id(table) for table in tables}) == len(tables) > len(key_tables.common_tables()) > 1
    assert tables[: len(key_tables.common_tables())] == key_tables.common_tables()
    register_dataset("mine", Mine, keys=FOLD)
    register_dataset("other", Mine, keys=NOISE)
    others = names(key_tables.list_other_tables("dataset", "mine"))
    assert "MODEL.NOISE" in others and "DATA.MINE.FOLD" not in others and "DATA.IMAGENET_MEAN" in others


def test_keys_of_a_class_that_is_imported_too_late_are_refused(monkeypatch):
    late = type("Late", (), {"keys": [FOLD]})
    monkeypatch.setitem(sys.modules, "own_late", SimpleNamespace(Late=late, Mine=Mine, KEYS=[FOLD]))
    register_dataset("late", "own_late:Late")
    with pytest.raises(
        UserError, match=r"^dataset 'late' declares keys in its class, .*register_dataset\('late', \.\.\., "
    ):
        lookup.resolve("dataset", "late")
    register_dataset("in_time", "own_late:Late", keys="own_late:KEYS")
    register_dataset("plain", "own_late:Mine")
    assert lookup.resolve("dataset", "In-Time") is late and lookup.resolve("dataset", "plain") is Mine


def test_models_are_listed_by_a_pattern_and_families_by_their_place():
    names = list_models("ResNet1*")
    assert {"resnet18", "resnet101"} <= set(names) and all(name.startswith("resnet1") for name in names)
    assert names == sorted(names) and list_models("*") == list_models() and list_models("1*") == []
    places = [family.partition(":") for family in REGISTRY.families]
    assert len(places) > 10 and all(place.startswith("paddlevit_dist.") and name for place, _, name in places)
