"""Configurations, records of runs and weights, for the table."""

import hashlib
import json
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from yacs.config import CfgNode

from paddlevit_dist import UserError
from paddlevit_dist.core import settings as config
from paddlevit_dist.core.checkpoint import store
from paddlevit_dist.core.checkpoint.array_files import write_safetensors
from paddlevit_dist.core.checkpoint.finding import find_run_settings
from paddlevit_dist.core.checkpoint.weights import read_weights
from paddlevit_dist.core.logging.record import supersede
from paddlevit_dist.core.tasks.metrics import SampleTable
from paddlevit_dist.extensions.compare.formatting import format_lines
from paddlevit_dist.extensions.compare.pairs import compare_tables
from paddlevit_dist.extensions.compare.tables import read_table as read_samples
from paddlevit_dist.extensions.compare.tables import write_evaluated
from paddlevit_dist.extensions.export.files import find_exported
from paddlevit_dist.images.detection.evaluation.match_tables import MatchTable

_FILES = Path(__file__).resolve().parents[1] / "files" / "weights_of_torch"
_STATE = {"weight": np.arange(12, dtype=np.float32).reshape(3, 4), "bias": np.ones(3, np.float16)}
_SETTINGS = """BASE: ['']
DATA: &data
  BATCH_SIZE: 8
  IMAGENET_MEAN: [0.5, 0.5, 0.5]
  CROP_SCALE: (0.08, 1.0)
MODEL: {NAME: vit_tiny_patch16_224, DROPOUT: 1e-1}
TRAIN:
  BASE_LR: 3e-3
  NUM_EPOCHS: 3
"""


def make_configuration(folder):
    (folder / "a.yaml").write_text(_SETTINGS)
    return [folder / "a.yaml"]


def read_configuration(folder):
    assert config.load([f"-cfg={folder / 'a.yaml'}"]).values.DATA.BATCH_SIZE >= 1


def make_settings(folder):
    (folder / "checkpoints" / "epoch_0001").mkdir(parents=True)
    (folder / "config.yaml").write_text(_SETTINGS)
    return [folder / "config.yaml"]


def read_settings(folder):
    settings = find_run_settings({}, folder / "checkpoints" / "epoch_0001" / "model.pdparams")
    assert settings is None or isinstance(settings, dict)


def make_events(folder):
    events = [{"kind": "training", "epoch": 1, "update": 5}, {"kind": "evaluation", "epoch": 1}, {"kind": "epoch"}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return [folder / "metrics.jsonl"]


def read_events(folder):
    assert supersede(folder, 0, 0).lost_updates >= 0


def make_weights(folder):
    (folder / "a.pdparams").write_bytes(pickle.dumps(_STATE, 4))
    (folder / "b.pdparams").write_bytes(pickle.dumps({"model": _STATE, "epoch": 3}, 2))
    for name in ("legacy.pth", "plain.safetensors"):
        shutil.copy(_FILES / name, folder / name)
    return sorted(folder.iterdir())


def make_archived_weights(folder):
    shutil.copy(_FILES / "zip.pth", folder / "zip.pth")
    np.savez(folder / "a.npz", **_STATE)
    np.savez_compressed(folder / "b.npz", **_STATE)
    return sorted(folder.iterdir())


def make_samples(folder):
    """Of images and of boxes, written as an evaluation writes them."""
    boxes = MatchTable.empty(2).to_arrays()
    boxes.update(
        image_ids=np.arange(3),
        counts=np.array([1, 0, 2], np.int32),
        num_true=np.array([1, 1, 0], np.int32),
        labels=np.array([0, 0, 1], np.uint16),
        scores=np.array([0.5, 0.7, 0.2], np.float32),
        true_positives=np.array([1, 0, 0], np.uint64),
        ignored=np.zeros(3, np.uint64),
        totals=np.ones((2, 4), np.int64),
        annotated=np.array([[0, 0, 1, 1, 0, 0], [1, 1, 1, 0, 1, 0]], np.int32),
    )
    classes = {"labels": np.array([0, 1, 1]), "places": np.array([0, 0, 1]), "losses": np.ones(3, np.float32)}
    kinds = {"classes": ({**classes, "top": np.array([1])}, "top-1"), "boxes": ({"ids": np.arange(3), **boxes}, "AP")}
    for kind, (arrays, score) in kinds.items():
        kept = SampleTable(kind, ["a", "b"], arrays)
        evaluation = SimpleNamespace(
            table=SimpleNamespace(indices=np.arange(3), to_sample_table=lambda kept=kept: kept, groups=None),
            config=CfgNode({"TASK": kind, "DATA": {"DATASET": "drawn"}}),
            task=SimpleNamespace(best_metric=(score, True), signature=lambda: {"DATA.IMAGE_SIZE": 16}),
            samples=SimpleNamespace(name=str),
            facts={},
        )
        for name in ("first", "second"):
            (folder / kind / name).mkdir(parents=True, exist_ok=True)
            write_evaluated(folder / kind / name / "intervals.json", evaluation, {"epoch": 1})
    return sorted(folder.rglob("*.npz"))


def compare_samples(folder):
    for kind in ("boxes", "classes"):
        tables = [read_samples(str(folder / kind / name)) for name in ("first", "second")]
        found = compare_tables(*tables)
        assert 0 <= found["p"] <= 1 and format_lines(tables, [found], 2)


def make_read_weights(file):
    state = read_weights(file).state
    assert all(isinstance(name, str) and isinstance(value, np.ndarray) for name, value in state.items())


def read_all_weights(folder):
    for file in sorted(folder.iterdir()):
        make_read_weights(file)


def _describe_all(place):
    """A manifest that fits the files as they are, damaged or not."""
    files = {
        file.name: {"bytes": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
        for file in place.iterdir()
        if file.name not in ("manifest.json", "evaluation.json")
    }
    (place / "manifest.json").write_text(json.dumps({"format": 1, "files": files}))


def make_checkpoint(folder):
    place = folder / "checkpoints" / "epoch_0003"
    place.mkdir(parents=True)
    (place / "model.pdparams").write_bytes(pickle.dumps(_STATE, 4))
    np.savez(place / "optimizer.npz", moment=np.zeros(3, np.float32))
    best = {"name": "acc@1", "value": 0.5, "epoch": 2, "line": "acc@1 50.00"}
    skipped = {"total": 0, "in_a_row": 0}
    state = {
        "position": {"epoch": 3, "consumed": 0, "update": 12},
        "extra": {
            "best": best,
            "scaler": {},
            "global_batch_size": 8,
            "evaluation_due": False,
            "skipped_updates": skipped,
            "undecayed": [],
            "training_means": None,
            "seed": 0,
        },
    }
    (place / "state.json").write_text(json.dumps(state))
    (place / "evaluation.json").write_text(json.dumps({"best": {**best, "epoch": 3}}))
    (place / "about.yaml").write_text(
        "task: x\nmodel: vit\ninput: {}\ndata: {train: {classes: [a, b]}}\nsettings: {}\n"
    )
    _describe_all(place)
    return sorted(place.iterdir())


def make_checkpoint_texts(folder):
    return [file for file in make_checkpoint(folder) if file.suffix in (".json", ".yaml")]


def read_checkpoint(folder):
    """As -resume=auto does."""
    found = store.newest_good(folder / "checkpoints", lambda line: None)
    if found is None:
        raise UserError("all are damaged")
    state = store.read(found)
    assert isinstance(store.read_about(str(found)), dict) and state.position["epoch"] == 3
    assert all(isinstance(array, np.ndarray) for array in state.optimizer.values())
    make_read_weights(found / "model.pdparams")


def read_described_checkpoint(folder):
    """The same, as somebody would write it who knows that there is a manifest."""
    _describe_all(folder / "checkpoints" / "epoch_0003")
    read_checkpoint(folder)


def make_onnx(folder):
    """An ONNX file with nothing but the description of this package."""
    about = b"classes: [wren, owl]\nthresholds: {wren: 0.25}\nsettings: {TASK: multi_label}\n"
    entry = b"\x0a\x05about\x12" + bytes([len(about)]) + about
    (folder / "net.onnx").write_bytes(b"\x08\x08r" + bytes([len(entry)]) + entry)
    assert find_exported(str(folder / "net.onnx")).about["thresholds"] == {"wren": 0.25}
    return [folder / "net.onnx"]


def read_onnx(folder):
    assert isinstance(find_exported(str(folder / "net.onnx")).about, dict)


def make_shards(folder):
    names = {}
    for number, (name, array) in enumerate(_STATE.items()):
        write_safetensors(folder / f"model-{number}.safetensors", {name: array}, {"format": "pt"})
        names[name] = f"model-{number}.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return sorted(folder.iterdir())


def read_shards(folder):
    make_read_weights(folder)
