"""The recipe for one's own boxes as a user starts it, with weights by name from a local server, on two processes."""

import json
import re
import sys

import numpy as np
from PIL import Image
from support.files.yolo_writer import write_yolo
from support.hosts.servers import Server, answer_as_hub
from support.processes import ROOT, run_command, run_main
from support.trainings.runs import last_line, well

from paddlevit_dist import create_model
from paddlevit_dist.core.checkpoint.array_files import write_safetensors
from paddlevit_dist.images.detection.detector import COCO_CATEGORIES

TUNED = f"-cfg={ROOT / 'configs' / 'finetune_detector.yaml'}"
SMALL = "MODEL.NAME dfine_small DATA.SHORTEST_SIDES [64] DATA.BATCH_SIDES [48,64] DATA.EVAL_SHORTEST_SIDE 64 -ngpus=2"
SMALL += " -num_workers=0 TRAIN.NUM_SAMPLES 60 TRAIN.EPOCH_LIMITS [3,9] DATA.NO_AUGMENT_EPOCHS 1 REPORT False"


def test_weights_by_name_epochs_by_size_resumed_evaluated_and_predicted(tmp_path):
    labels = {str(n): f"{n % 2} 0.5 0.5 0.4 0.6\n" if n % 5 else "" for n in range(20)}
    write_yolo(tmp_path / "mine", "images", labels, "names: [cat, dog]\n")
    (tmp_path / "mine" / "data.yaml").write_text("names: [cat, dog]\ntrain: images\n")
    weights = {name: value.numpy() for name, value in create_model("dfine_small", num_classes=80).state_dict().items()}
    write_safetensors(tmp_path / "w", weights)
    labels_of_80 = {str(number): name for number, name in enumerate(COCO_CATEGORIES.values())}
    answers = {"model.safetensors": answer_as_hub((tmp_path / "w").read_bytes())}
    answers["config.json"] = answer_as_hub(json.dumps({"id2label": labels_of_80}).encode())

    def answer(asked):
        name = "model.safetensors" if "/api/" in asked.path else asked.path.rpartition("/")[2]
        answers.get(name, lambda handler: handler.send_error(404))(asked)

    with Server() as server:
        server.answer = answer

        def start(output, *words):
            fixed = {"HF_ENDPOINT": server.address("")[:-1], "PADDLEVIT_DIST_CACHE": str(tmp_path / "cache")}
            fixed |= {"no_proxy": "127.0.0.1", "HF_HOME": str(tmp_path / "none")}
            data = f"-data_path={tmp_path / 'mine'}"
            return run_main(TUNED, *SMALL.split(), data, f"-output={tmp_path / output}", *words, timeout=600, **fixed)

        first = well(start("run", "-stop_after_epoch=1"))
        paths = {path for path in server.requests if "/api/" not in path}
        resumed = well(start("run", "-resume=auto"))
    repository = "/ustc-community/dfine-small-obj2coco/resolve/main"
    assert paths == {f"{repository}/model.safetensors", f"{repository}/config.json"}
    assert "16 training images: 4 epochs, 16 updates (TRAIN.NUM_SAMPLES 60, EPOCH_LIMITS 3 to 9)" in first.out
    assert "dataset: yolo instead of coco" in first.out and "epoch 4/4 training" in resumed.out
    report = json.loads((tmp_path / "run" / "load_report.json").read_text())
    assert report["classes_by_name"] == [2, 2] and not report["reinitialized"]
    assert "2 of 2 classes by name" in first.out
    assert not report["missing"] and not report["unexpected"]

    evaluated = well(start("look", "-eval", f"-pretrained={tmp_path / 'run'}", "-batch_size=1"))
    assert last_line(evaluated) == re.sub(r" \(.*", "", last_line(resumed))
    assert re.search(r"^[\d.]+ images/s from pixels to boxes \(1 at a time", evaluated.out, re.MULTILINE)

    for number, mode in enumerate(("L", "RGBA", "P", "RGB")):
        Image.fromarray(np.full((33, 47), 90, np.uint8)).convert(mode).save(tmp_path / f"{number}.png")
    command = [sys.executable, "-m", "paddlevit_dist", "predict", "run", *(f"{n}.png" for n in range(4)), "-output=new"]
    assert "4 predicted" in well(run_command(command, timeout=600, folder=tmp_path)).out
