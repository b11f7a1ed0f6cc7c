"""Images of a split, what is held out, and the number of classes."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.registrations import forgotten

from paddlevit_dist import UserError, register_dataset
from paddlevit_dist.core.settings import load
from paddlevit_dist.images import ImageDataset
from paddlevit_dist.images.classification.opening import choose_num_classes, open_images
from paddlevit_dist.images.data import image_samples
from paddlevit_dist.images.data.held_out import DatasetPart
from paddlevit_dist.images.data.reading import ReadConfig


class Part(SimpleNamespace):
    """Names are not all UTF-8."""

    notices, reading, labels, label_matrix = ("of the data",), None, None, None
    num_classes = class_names = None

    def __len__(self):
        return self.number

    def identity(self, index):
        return f"{index}\udce9.png"

    def describe_groups(self):
        return ", by patient"

    def read_with(self, given):
        self.calls.append(("read", given))

    def limit_cache(self, gigabytes):
        self.calls.append(("cache", gigabytes))


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """Open a split; return dataset, notes and what was called."""

    def run(split, *words, has_validation=True):
        calls = []
        whole = Part(calls=calls, number=1200)

        def note(name, result):
            return lambda *given: calls.append((name, *given)) or result

        kind = SimpleNamespace(
            has_validation=note("asked", has_validation), open=note("open", whole), whole=note("whole", whole)
        )
        monkeypatch.setattr(image_samples, "dataset_class", lambda config, base: kind)
        monkeypatch.setattr(image_samples, "wrap_dataset", lambda dataset, *names: dataset)
        part = Part(number=3, dataset=whole, calls=calls)
        monkeypatch.setattr(image_samples, "hold_out", note("held out", part))
        config = load(["-dataset=folder", "-data_path=data", f"-output={tmp_path}", *words]).values
        found, notes = open_images(config, split, tmp_path / "cache")
        return found, notes, calls, config, whole, part

    return run


def test_a_dataset_with_validation_images_is_opened_as_it_is(opened, tmp_path):
    found, notes, calls, config, whole, _ = opened(
        "val", "DATA.EXIF_ROTATE=true", "DATA.MAX_PIXELS=77", "DATA.VAL_FRACTION_IF_MISSING=0.2"
    )
    assert (
        found is whole
        and notes == ["of the data"]
        and calls
        == [
            ("asked", "data"),
            ("open", config, "val", tmp_path / "cache"),
            ("read", ReadConfig(True, 77)),
            ("cache", config.DATA.REMOTE_CACHE_GIGABYTES),
        ]
    )
    assert (
        opened("test", "DATA.VAL_FRACTION_IF_MISSING=0.2", has_validation=False)[2][0][0] == "open"
    )  # a split that is never held out
    without_a_path = opened("val", "DATA.DATA_PATH=None", "DATA.VAL_FRACTION_IF_MISSING=0.2", has_validation=False)
    assert without_a_path[2][0][0] == "open"  # such as digits, which are in the package


@pytest.mark.parametrize("key, has_validation", [("_IF_MISSING", False), ("", False), ("", True)])
def test_a_part_of_the_training_images_is_held_out(opened, tmp_path, key, has_validation):
    words = [f"DATA.VAL_FRACTION{key}=0.25", "DATA.VAL_SEED=5"]
    words += [] if key else ["DATA.VAL_FRACTION_IF_MISSING=0.5"]  # which is not used then
    found, notes, calls, config, whole, part = opened("val", *words, has_validation=has_validation)
    assert found is part and ("whole", "data", tmp_path / "cache") in calls
    assert calls[-1] == ("held out", whole, "val", 0.25, 5, tmp_path / "cache", DatasetPart)
    listed = tmp_path / "val_files.txt"
    said = f"note: 3 of 1,200 training images are held out for validation (DATA.VAL_FRACTION{key} 0.25, VAL_SEED 5)"
    assert notes == ["of the data", f"{said}, listed in {listed}, by patient"]
    assert listed.read_bytes() == b"0\xe9.png\n1\xe9.png\n2\xe9.png\n"
    found, notes, *_, part = opened("train", *words, has_validation=has_validation)
    assert found is part and notes == ["of the data"]


@pytest.mark.parametrize("words", [[], ["DATA.VAL_FRACTION=0.5"]])
@pytest.mark.parametrize(
    "number, attributes, problem",
    [
        (0, {"labels": np.zeros(0, np.int64)}, "no train images"),
        (
            4,
            {"labels": np.array([1, 0, 1])},
            "4 images, but 3 in its attribute 'labels'; expected labels of each image",
        ),
        (2, {"label_matrix": np.ones((3, 2), np.int8)}, "2 images, but 3 in its attribute 'label_matrix'; expected la"),
    ],
)
def test_a_user_s_dataset_without_images_or_with_other_labels_is_refused(number, attributes, problem, words, tmp_path):
    class Own(ImageDataset):
        num_classes, read = 2, None

        def __init__(self, *where):
            vars(self).update(attributes)

        def __len__(self):
            return number

    with forgotten():
        register_dataset("own", Own)
        config = load(["-dataset=own", f"-output={tmp_path}", *words]).values
        with pytest.raises(UserError, match=f"^dataset own has {problem}"):
            open_images(config, "train", tmp_path / "cache")


@pytest.mark.parametrize("attributes, number", [({"class_names": ["a", "b", "c"]}, 3), ({"num_classes": 2}, 2)])
def test_a_dataset_has_as_many_classes_as_names_or_says_how_many(attributes, number, tmp_path):
    with forgotten():
        methods = {"__len__": lambda self: 4, "read": lambda self, index: None}
        register_dataset("own", type("Own", (ImageDataset,), {**attributes, **methods}))
        config = load(["-dataset=own", f"-output={tmp_path}"]).values
        dataset, _ = open_images(config, "train", tmp_path / "cache")
    assert choose_num_classes(config, dataset, None) == dataset.num_classes == number


def test_the_number_of_classes_is_checked(refuse):
    config = load(["-dataset=folder", "-data_path=data"]).values

    def made(number, names=None):
        return SimpleNamespace(num_classes=number, class_names=names, own_class=object)

    assert [choose_num_classes(config, made(5), given) for given in (None, 5, 9)] == [5, 5, 9]
    assert choose_num_classes(config, made(2), None) == 2 and choose_num_classes(config, made(1), 1) == 1
    few = "dataset folder at data has only one class{}: a classifier needs two or more, one folder each"
    assert refuse(choose_num_classes, config, made(1), None) == few.format("")
    assert refuse(choose_num_classes, config, made(1, ["a\nb"]), None) == few.format(", a\\nb")
    assert refuse(choose_num_classes, load([]).values, made(1), None).startswith("dataset digits has only one class:")
    assert refuse(choose_num_classes, config, made(0, []), None).startswith("dataset folder at data has no classes: a")
    unknown = refuse(choose_num_classes, config, made(None), None)
    assert unknown.startswith(
        "dataset folder does not say which classes it has: give its class an attribute class_names"
    )
    own = type("Own", (ImageDataset,), {"num_classes": 0, "class_names": [], "__len__": len, "read": len})(
        None, "val", None
    )
    for each in (own, SimpleNamespace(num_classes=0, dataset=own)):
        assert refuse(choose_num_classes, config, each, None) == unknown
    assert refuse(choose_num_classes, config, made(5), 4) == (
        "dataset folder has labels 0 to 4 but MODEL.NUM_CLASSES (-num_classes) is 4; set it to 5 or remove it"
    )
