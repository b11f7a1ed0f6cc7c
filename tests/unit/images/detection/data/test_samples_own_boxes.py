"""The recipe for one's own boxes reads any layout, with and without images for validation."""

import pytest
from support.files.coco_writer import annotation, write_coco, write_image
from support.files.voc_writer import an_object, write_voc, write_xml
from support.files.yolo_writer import write_yolo
from support.processes import ROOT

from paddlevit_dist.core.settings import load
from paddlevit_dist.core.settings.names import suggest_recipe
from paddlevit_dist.images.detection.data.samples import open_samples

BOX = "0 0.5 0.5 0.4 0.6\n"
TUNED = f"-cfg={ROOT / 'configs' / 'finetune_detector.yaml'}"


def write(folder, layout, has_val):
    """Five images, or four for training and one for validation."""
    if layout == "coco":
        for split, number in ({"train2017": 4, "val2017": 1} if has_val else {"things": 5}).items():
            images = [{"id": n, "file_name": f"{n}.png", "height": 20, "width": 30} for n in range(number)]
            for n in range(number):
                write_image(folder / "images" / f"{n}.png" if not has_val else folder / split / f"{n}.png", 20, 30, n)
            objects = [annotation(1 + n, n, [2.0, 3.0, 9.0, 8.0]) for n in range(number)]
            write_coco(folder, objects, split, images, "" if has_val else "a.json")
    elif layout == "yolo":
        if has_val:
            write_yolo(folder, labels={str(n): BOX for n in range(4)}, names=None)
            write_yolo(folder, "images/val", {"9": BOX}, names=None)
        else:
            write_yolo(folder, "", {str(n): BOX for n in range(5)}, names=None)
        (folder / "classes.txt").write_text("cat\n")
    elif has_val:
        write_voc(folder, {"train": ["1", "2", "3", "4"], "val": ["5"]})
    else:
        for n in range(5):
            write_image(folder / f"{n}.png", 20, 30, n)
            write_xml(folder / f"{n}.xml", an_object())


@pytest.mark.parametrize("has_val", [True, False])
@pytest.mark.parametrize("layout", ["coco", "yolo", "voc"])
def test_any_layout_is_read_and_a_fifth_is_held_out_where_nothing_is_for_validation(layout, has_val, tmp_path, cache):
    write(tmp_path / "boxes", layout, has_val)
    loaded = load([TUNED, f"-data_path={tmp_path / 'boxes'}"], default_recipe="vit_digits")
    assert loaded.values.DATA.DATASET == layout
    assert any("instead of coco" in notice for notice in loaded.notices) == (layout != "coco")
    splits = [open_samples(loaded.values, split, cache, split == "train") for split in ("train", "val")]
    assert [len(split) for split in splits] == [4, 1]
    assert any("VAL_FRACTION_IF_MISSING 0.2" in notice for notice in splits[1].notices) != has_val
    named = load([TUNED, "-dataset=coco", f"-data_path={tmp_path / 'boxes'}"], default_recipe="vit_digits")
    assert named.values.DATA.DATASET == "coco"  # what the command line says counts


def test_the_recipe_is_what_a_path_without_one_offers():
    assert {suggest_recipe(layout) for layout in ("coco", "voc", "yolo")} == {"finetune_detector"}


SMALL = "MODEL.NAME dfine_small DATA.SHORTEST_SIDES [64] DATA.BATCH_SIDES [48,64] DATA.EVAL_SHORTEST_SIDE 64 -ngpus=2"
SMALL += " -num_workers=0 TRAIN.NUM_SAMPLES 60 TRAIN.EPOCH_LIMITS [3,9] DATA.NO_AUGMENT_EPOCHS 1 REPORT False"
