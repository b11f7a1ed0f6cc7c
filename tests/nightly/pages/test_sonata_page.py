"""The session of docs/tutorials/sonata.md as it stands, with a small encoder in the published layout."""

import csv
import json
import re

import numpy as np
import paddle
from support.files.raw_scenes import zipped

from paddlevit_dist import create_model
from paddlevit_dist.core.checkpoint.foreign_names import to_torch_names
from paddlevit_dist.points.ptv3.weights import to_pointcept

from .reading import make_commands
from .test_tutorials import Session

PAGE = "docs/tutorials/sonata.md"
ENCODER = {"strides": [2, 2], "encoder_depths": [1, 1, 2], "encoder_channels": [12, 24, 48], "encoder_heads": [1, 2, 4]}
ENCODER |= {"patch_size": 64}
DECODER = {"decoder_depths": [1, 1], "decoder_channels": [12, 12], "decoder_heads": [1, 1]}


def write_encoder(file) -> None:
    paddle.seed(0)
    model = create_model("sonata", num_classes=0, **ENCODER)
    linear = {id(layer.weight) for layer in model.sublayers() if isinstance(layer, paddle.nn.Linear)}
    own = {key: value.numpy().T if id(value) in linear else value.numpy() for key, value in model.state_dict().items()}
    state = {key.removeprefix("backbone."): value for key, value in to_pointcept(own)[0].items()}
    zipped(file, {"config": {"enc_mode": True}, "state_dict": to_torch_names(state)})


def narrow(command: str) -> str:
    """On a CPU, with the small encoder's sizes."""
    options = ENCODER if "MODEL.NAME sonata " in command else {**ENCODER, **DECODER}
    changes = (
        f"MODEL.OPTIONS '{json.dumps(options)}' DATA.VOXEL_SIZE_M 0.2 -epochs=1 POINTS.MAX_POINTS 4000 -batch_size=2"
    )
    return f"{command} {changes}" if " train " in command else command


def test_sonata_is_fine_tuned_on_scans(tmp_path):
    session = Session(tmp_path, PAGE)
    write_encoder(tmp_path / "sonata.pth")
    printed = {command: session.type(narrow(command)) for command in make_commands(PAGE)}
    head, tuned = (out for command, out in printed.items() if " train " in command)
    assert all("non-commercial use (CC-BY-NC 4.0)" in out for out in (head, tuned))
    assert re.search(r"training [\d,]+ parameters", head)
    evaluated = next(out for command, out in printed.items() if " evaluate " in command)
    assert re.search(r"^mIoU [\d.]+ .*4 directions, up to 100 votes of a voxel's points", evaluated, re.MULTILINE)
    with open(tmp_path / "predictions" / "predictions.csv", encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert sum(int(row[name]) for name in ("points_ball", "points_floor", "points_box")) == 16000
    assert len(np.loadtxt(tmp_path / "predictions" / "new_scan.txt")) == 16000
