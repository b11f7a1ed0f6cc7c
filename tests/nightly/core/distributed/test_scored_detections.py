"""Predictions of objects, of files that number images and categories otherwise than the training, are scored."""

import json
import sys

import numpy as np
from PIL import Image
from support.trainings import small_detections
from support.trainings.runs import Finished, run_command, well

FEW = ["DATA.SHAPES.OBJECTS_PER_IMAGE", "[0, 1]"]


def command(*words: str) -> Finished:
    return run_command([sys.executable, "-m", "paddlevit_dist", *words])


def test_predictions_are_scored_by_names_or_with_the_ids_of_a_file(tmp_path):
    """Both give the numbers of each other."""
    small_detections.train(str(tmp_path / "one"), ["-batch_size=4", *FEW])
    names = ("triangle", "circle", "square")
    (tmp_path / "new").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (5, 30, 20, 3), dtype=np.uint8)
    images = [{"id": 90 - index, "file_name": f"{index}.png", "height": 30, "width": 20} for index in range(5)]
    for image, own in zip(images, pixels):
        Image.fromarray(own).save(tmp_path / "new" / image["file_name"])
    categories = [{"id": 10 + number, "name": name} for number, name in enumerate(names)]
    stats, results, file = [], [], tmp_path / "new.json"
    for folder, words in (("by_name", []), ("by_id", [f"-annotations={file}"])):
        call = ["-import=support.trainings.small_detections", str(tmp_path / "one"), str(tmp_path / "new")]
        well(command("predict", *call, f"-output={tmp_path / folder}", *words))
        results.append(json.loads((tmp_path / folder / "results.json").read_text()))
        own = results[-1]
        if words:  # as any other program reads it
            own = [{name: value for name, value in one.items() if not name.endswith("_name")} for one in own]
        else:
            objects = [
                {"id": number, "image_id": 90 - one["image_id"], "bbox": one["bbox"], "area": 500}
                | {"category_id": 10 + names.index(one["category_name"])}
                for number, one in enumerate(own[::4], 1)
            ]
            file.write_text(json.dumps({"images": images, "categories": categories, "annotations": objects}))
        (tmp_path / "results.json").write_text(json.dumps(own))
        run = command("evaluate", "detections", str(file), str(tmp_path / "results.json"), "-interval=off", "-json")
        stats.append(json.loads(well(run).out)["stats"])
    assert {one["image_id"] for one in results[0]} == {0, 1, 2, 3, 4} and 10 in {
        one["category_id"] for one in results[1]
    }
    assert {one["image_id"] for one in results[1]} == {86, 87, 88, 89, 90}
    assert stats[0] == stats[1] and stats[0][0] > 0.1
    again = command("predict", *call, f"-output={tmp_path / 'by_id'}")
    assert f"output folder: {tmp_path / 'by_id'}-2, as" in well(again).out and "with other annotations" in again.out
