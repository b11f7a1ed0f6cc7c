"""The command of the pages that evaluates weights, and what it has to print."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest
from PIL import Image
from support.processes import ROOT, run_command
from support.trainings.runs import last_line, well

from paddlevit_dist import create_model

EXAMPLE = r"""
CUDA_VISIBLE_DEVICES=0,1,2,3 \
python main_multi_gpu.py \
    -cfg='./configs/vit_base_patch16_224.yaml' \
    -dataset='imagenet2012' \
    -batch_size=16 \
    -data_path='/dataset/imagenet' \
    -eval \
    -pretrained='./vit_base_patch16_224'
"""
SIZES = [(300, 240), (224, 224), (180, 333), (640, 200), (256, 257), (251, 500)]  # width, height
# Place of the true class among the scores, over and over: 2 of 6 are best, 4 of 6 among the best five.
PLACES = [0, 4, 5, 0, 1, 700]


def write_jpegs(folder: Path, number: int) -> list:
    """Images of colored bands, some gray, some larger and some smaller than the model's input."""
    generator = np.random.default_rng(7)
    folder.mkdir(parents=True)
    files = []
    for index in range(number):
        bands = generator.integers(0, 256, (7, 5, 3), dtype=np.uint8)
        image = Image.fromarray(bands).resize(SIZES[index % len(SIZES)], Image.Resampling.BILINEAR)
        image = image.convert("L") if index % 4 == 3 else image
        files.append(folder / f"ILSVRC2012_val_{index + 1:08d}.JPEG")
        image.save(files[-1], quality=90)
    return files


def prepare(file: Path) -> np.ndarray:
    """What ImageNet's evaluation is: shorter side to 256, center of 224, pixels to -1 .. 1."""
    image = Image.open(file).convert("RGB")
    width, height = image.size
    size = (256, int(256 * height / width)) if width <= height else (int(256 * width / height), 256)
    pixels = np.asarray(image.resize(size, Image.Resampling.BICUBIC))
    top, left = round((pixels.shape[0] - 224) / 2), round((pixels.shape[1] - 224) / 2)
    pixels = pixels[top : top + 224, left : left + 224].astype(np.float32)
    return (pixels / 255 - 0.5).transpose(2, 0, 1) / 0.5


def write_case(root: Path, number: int, **dimensions) -> str:
    """Weights, images and their list in ``root``; returns the line that the evaluation must end with."""
    paddle.seed(11)
    model = create_model("vit_base_patch16_224", 1000, **dimensions)
    model.head.weight.set_value(model.head.weight * 25)  # scores far enough apart to be put in order
    model.eval()
    paddle.save(model.state_dict(), str(root / "vit_base_patch16_224.pdparams"))

    images = root / "image net"
    files = write_jpegs(images / "val", number)
    labels, losses = [], []
    for index, file in enumerate(files):
        with paddle.no_grad():
            scores = model(paddle.to_tensor(prepare(file)[None])).numpy()[0].astype(np.float64)
        order = np.argsort(-scores)
        label = int(order[PLACES[index % len(PLACES)]])
        near = np.abs(np.delete(scores, label) - scores[label]).min()
        assert near > 1e-3 or PLACES[index % len(PLACES)] > 5, "rounding may change the order"
        labels.append(label)
        losses.append(np.log(np.exp(scores - scores.max()).sum()) + scores.max() - scores[label])
    lines = [f"val/{file.name} {label}\n" for file, label in zip(files, labels)]
    (images / "val_list.txt").write_text("".join(lines))

    places = [PLACES[index % len(PLACES)] for index in range(number)]
    top1, top5 = (100 * np.mean([place < k for place in places]) for k in (1, 5))
    return f"top-1 {top1:.2f} top-5 {top5:.2f} loss {np.mean(losses):.4f}"


def type_example(root: Path) -> str:
    """Run the script in a shell whose working folder is ``root``; returns the last line of its output."""
    (root / "main_multi_gpu.py").symlink_to(ROOT / "main_multi_gpu.py")
    script = EXAMPLE.replace("/dataset/imagenet", str(root / "image net"))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    unprepared = "unset PADDLEVIT_DIST_ENVIRONMENT PYTHONWARNINGS GLOG_minloglevel PYTHONPATH"
    ended = well(run_command(["bash", "-c", f"cd '{root}' && {unprepared} && {script}"], PATH=path))
    assert (root / "output" / "vit_base_patch16_224_eval" / "eval_config.yaml").exists()  # below the working folder
    return last_line(ended)


def agree(line: str, expected: str) -> None:
    """Equal counts, and losses that differ by no more than rounding; the interval is another test's."""
    words, wanted = re.sub(r" \[[\d.]+, [\d.]+\]", "", line).split(), expected.split()
    assert words[:5] == wanted[:5]
    assert float(words[5]) == pytest.approx(float(wanted[5]), abs=2e-3)
