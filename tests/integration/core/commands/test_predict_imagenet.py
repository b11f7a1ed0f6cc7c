"""``predict`` with weights of a thousand classes that have no names."""

import csv
import json
import sys

import numpy as np
from PIL import Image
from support.processes import run_command
from support.trainings.trained import write_weights

from paddlevit_dist import Predictor
from paddlevit_dist.images.imagenet_classes import names_by_synset


def test_a_thousand_classes_without_names_are_those_of_imagenet(tmp_path):
    image = Image.fromarray(np.random.default_rng(2).integers(0, 255, (24, 20, 3), np.uint8))
    image.save(tmp_path / "one.png")
    source = write_weights(tmp_path / "w", None, num_classes=1000)
    (numbered,) = Predictor(source, class_names=[str(n) for n in range(1000)])([image])
    (tmp_path / "cut.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + b"x" * 500)
    command = [sys.executable, "-m", "paddlevit_dist", "predict", str(source), "one.png", "cut.mp4", "--output=new"]
    ended = run_command(command, folder=tmp_path)
    assert ended.code == 2 and "error: predict: cut.mp4: OpenCV finds no frames in this video" in ended.err
    assert "note: the weights do not name their 1,000 classes; ImageNet's names are used" in ended.out
    (row,) = [json.loads(line) for line in (tmp_path / "new" / "predictions.jsonl").read_text().splitlines()]
    names = list(names_by_synset().values())
    assert [row[key] for key in row if "class" in key] == [names[int(v)] for k, v in numbered.items() if "class" in k]
    assert "the classes are drawn next to the images in new/pictures" in ended.out
    assert "cut.mp4\tOpenCV finds no frames in this video" in (tmp_path / "new" / "unreadable.tsv").read_text()
    drawn = np.asarray(Image.open(tmp_path / "new" / "pictures" / "one.jpg")).astype(int)
    enlarged = np.asarray(image.resize((267, 320), Image.Resampling.NEAREST)).astype(int)
    assert drawn.shape == (320, 267 + 280, 3) and np.abs(drawn[:, :267] - enlarged).mean() < 8
    header, values = list(csv.reader((tmp_path / "new" / "predictions.csv").open(encoding="utf-8")))
    assert header[:3] == ["input", "class", "score"] and values[1] == row["class"]
