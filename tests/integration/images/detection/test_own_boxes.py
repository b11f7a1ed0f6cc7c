"""The recipe for one's own boxes: any layout, with and without images for validation; as a user starts it, with weights
by name from a local server, on two processes."""

import json
import re
import sys

import numpy as np
import pytest
from PIL import Image
from support.coco_writer import annotation, write_coco, write_image
from support.processes import ROOT, run_command, run_main
from support.runs import last_line, well
from support.servers import Server, answer_as_hub
from support.voc_writer import an_object, write_voc, write_xml
from support.yolo_writer import write_yolo

from paddlevit_dist import create_model
from paddlevit_dist.checkpoint.array_files import write_safetensors
from paddlevit_dist.images.detection.data.samples import open_samples
from paddlevit_dist.registry import RECIPES
from paddlevit_dist.settings import load

BOX = "0 0.5 0.5 0.4 0.6\n"
TUNED = f"-cfg={ROOT / 'configs' / 'finetune_boxes.yaml'}"


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
    loaded = load([TUNED, f"-data_path={tmp_path / 'boxes'}"], example="vit_digits")
    assert loaded.values.DATA.DATASET == layout
    assert any("instead of coco" in notice for notice in loaded.notices) == (layout != "coco")
    splits = [open_samples(loaded.values, split, cache, split == "train") for split in ("train", "val")]
    assert [len(split) for split in splits] == [4, 1]
    assert any("VAL_FRACTION_IF_MISSING 0.2" in notice for notice in splits[1].notices) != has_val
    named = load([TUNED, "-dataset=coco", f"-data_path={tmp_path / 'boxes'}"], example="vit_digits")
    assert named.values.DATA.DATASET == "coco"  # what the command line says counts


def test_the_recipe_is_what_a_path_without_one_offers():
    assert {RECIPES[layout] for layout in ("coco", "voc", "yolo")} == {"finetune_boxes"}


SMALL = "MODEL.NAME dfine_small DATA.SHORTEST_SIDES [64] DATA.BATCH_SIDES [48,64] DATA.EVAL_SHORTEST_SIDE 64 -ngpus=2"
SMALL += " -num_workers=0 TRAIN.NUM_SAMPLES 60 TRAIN.EPOCH_LIMITS [3,9] DATA.PLAIN_EPOCHS 1 REPORT False"


@pytest.mark.long
def test_weights_by_name_epochs_by_size_resumed_evaluated_and_predicted(tmp_path):
    labels = {str(n): f"{n % 2} 0.5 0.5 0.4 0.6\n" if n % 5 else "" for n in range(20)}
    write_yolo(tmp_path / "mine", "images", labels, "names: [cat, dog]\n")
    (tmp_path / "mine" / "data.yaml").write_text("names: [cat, dog]\ntrain: images\n")
    weights = {name: value.numpy() for name, value in create_model("dfine_small", num_classes=80).state_dict().items()}
    write_safetensors(tmp_path / "w", weights)

    with Server() as server:
        server.answer = answer_as_hub((tmp_path / "w").read_bytes())

        def start(output, *words):
            fixed = {"HF_ENDPOINT": server.address("")[:-1], "PADDLEVIT_DIST_CACHE": str(tmp_path / "cache")}
            fixed |= {"no_proxy": "127.0.0.1", "HF_HOME": str(tmp_path / "none")}
            data = f"-data_path={tmp_path / 'mine'}"
            return run_main(TUNED, *SMALL.split(), data, f"-output={tmp_path / output}", *words, **fixed)

        first = well(start("run", "-stop_after_epoch=1"))
        (path,) = (path for path in server.requests if "/api/" not in path)
        resumed = well(start("run", "-resume=auto"))
    assert path == "/ustc-community/dfine-small-obj2coco/resolve/main/model.safetensors"
    assert "16 training images: 4 epochs, 16 updates (TRAIN.NUM_SAMPLES 60, EPOCH_LIMITS 3 to 9)" in first.out
    assert "dataset: yolo instead of coco" in first.out and "epoch 4/4 training" in resumed.out
    report = json.loads((tmp_path / "run" / "load_report.json").read_text())
    new = {entry["name"].rpartition(".")[0] for entry in report["reinitialised"]}
    assert new == {"enc_score_head", "decoder.class_embed.0", "decoder.class_embed.1", "denoising_class_embed"}
    assert not report["missing"] and not report["unexpected"]

    evaluated = well(start("look", "-eval", f"-pretrained={tmp_path / 'run'}", "-batch_size=1"))
    assert last_line(evaluated) == re.sub(r" \(.*", "", last_line(resumed))
    assert re.search(r"^[\d.]+ images/s from pixels to boxes \(1 at a time", evaluated.out, re.MULTILINE)

    for number, mode in enumerate(("L", "RGBA", "P", "RGB")):
        Image.fromarray(np.full((33, 47), 90, np.uint8)).convert(mode).save(tmp_path / f"{number}.png")
    command = [sys.executable, "-m", "paddlevit_dist", "predict", "run", *(f"{n}.png" for n in range(4)), "-output=new"]
    assert "4 predicted" in well(run_command(command, timeout=120, folder=tmp_path)).out
