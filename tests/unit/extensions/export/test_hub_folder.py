"""The folder of -format=hub: its card is read by the classes of Hugging Face's own library."""

import json
import re
import shutil

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard
from PIL import Image
from support.trainings.trained import write_weights

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.families import ConvertedWeights
from paddlevit_dist.core.registry.lookup import annotation_type, list_names
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.settings import configuration
from paddlevit_dist.core.tasks.figures import Gallery
from paddlevit_dist.extensions.export import command
from paddlevit_dist.extensions.export.hub_folder import describe_for_timm, format_card, write_hub_folder
from paddlevit_dist.extensions.report import store
from paddlevit_dist.images.described_input import parse_timm_file
from paddlevit_dist.images.models.pretrained_input import ExpectedInput

NAMES = ["no", "ca|t", "Ähre"]
EVENT = {"top-1": 62.5, "loss": 1.25, "rare": None, "samples": 8, "best": "top-1"}
INTERVAL = {"percent": 95, "top-1": [30.5, 86.3], "loss": None, "rare": None}


def write_run(folder, epoch=2, events=(), words=("DATA.DATA_PATH", "hf:somebody/leaves@v2")):
    """The folder of a run with one checkpoint and the lines of its evaluations."""
    checkpoint = folder / "checkpoints" / f"epoch_{epoch:04d}"
    weights = write_weights(checkpoint, NAMES, *words)
    weights.rename(checkpoint / "model.pdparams")
    best = {"name": "top-1", "value": 62.5, "epoch": epoch, "line": ""}
    extra = {"best": best, "global_batch_size": 8, "scaler": {}, "skipped_updates": {"total": 0, "in_a_row": 0}}
    extra |= {"evaluation_due": False, "undecayed": [], "training_means": None}
    state = {"position": {"epoch": epoch, "consumed": 0, "update": 9}, "extra": extra}
    (checkpoint / "state.json").write_text(json.dumps(state))
    lines = [json.dumps({"kind": "evaluation", "time": 1.0, **event}) for event in events]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(autouse=True)
def _one_family(monkeypatch):
    """To build a network of each family takes seconds."""
    monkeypatch.setattr(REGISTRY, "models", {"vit": REGISTRY.models["vit"]})


@pytest.fixture
def run(tmp_path):
    other = {**EVENT, "epoch": 1, "top-1": 12.5}
    return write_run(
        tmp_path / "run", events=[other, {**EVENT, "epoch": 2, "interval": INTERVAL}, {**other, "epoch": 3}]
    )


def test_the_hub_s_own_classes_read_the_scores_with_their_intervals(run, tmp_path):
    lines = write_hub_folder(str(run), str(tmp_path / "my leaves"), None, "apache-2.0", False)
    assert lines[-1] == f"hf upload OWNER/'my leaves' '{tmp_path / 'my leaves'}'"
    assert {path.name for path in (tmp_path / "my leaves").iterdir()} == {
        "README.md",
        "about.yaml",
        "model.safetensors",
    }
    data = ModelCard.load(tmp_path / "my leaves" / "README.md").data
    assert (data.library_name, data.pipeline_tag, data.license) == (
        "paddlevit_dist",
        "image-classification",
        "apache-2.0",
    )
    assert data.datasets == ["somebody/leaves"] and data.model_name == "my leaves"
    first, second = data.eval_results
    assert (first.metric_type, first.metric_name, first.metric_value) == ("accuracy", "top-1", 62.5)
    assert first.metric_args == {"interval": [30.5, 86.3], "percent": 95}
    assert (second.metric_type, second.metric_value, second.metric_args) == ("loss", 1.25, None)
    assert (first.task_type, first.dataset_type, first.dataset_split) == (
        "image-classification",
        "somebody/leaves",
        "val",
    )


@pytest.mark.parametrize(
    "words, published, expected, of",
    [
        (
            ("DATA.DATA_PATH", "hf:somebody/leaves@v2"),
            {"repository": "somebody/leaves", "revision": "c0ffee", "configuration": "small", "split": "test"},
            ("somebody/leaves", "small", "test", "c0ffee", None),
            "the split `test` of somebody/leaves",
        ),
        (
            ("DATA.DATASET", "hub", "DATA.DATA_PATH", "leaves"),
            {"configuration": "default", "split": "train", "share": 0.25},
            ("parquet", "default", "train", None, {"share": 0.25}),
            "0.25 of the split `train` of hub",
        ),
        (
            ("DATA.DATASET", "folder", "DATA.DATA_PATH", "leaves"),
            {"split": "Valid"},
            ("imagefolder", None, "Valid", None, None),
            "the split `Valid` of folder",
        ),
        (
            ("DATA.DATASET", "folder", "DATA.DATA_PATH", "/home/me/hub/datasets--some--green--leaves/snapshots/c0ffee"),
            {"split": "test"},
            ("some/green--leaves", None, "test", None, None),
            "the split `test` of some/green--leaves",
        ),
        (("DATA.DATASET", "digits"), None, ("digits", None, "val", None, None), "the split `val` of digits"),
    ],
)
def test_a_card_names_the_data_as_they_are_published(tmp_path, words, published, expected, of):
    run = write_run(tmp_path / "run", events=[{**EVENT, "epoch": 2, "interval": INTERVAL}], words=words)
    if published is not None:
        record = run / "checkpoints" / "epoch_0002" / "about.yaml"
        stored = yaml.safe_load(record.read_text(encoding="utf-8"))
        stored["published_as"] = {"val": published}
        record.write_text(yaml.safe_dump(stored, allow_unicode=True), encoding="utf-8")
    write_hub_folder(str(run), str(tmp_path / "out"), None, None, False)
    card = ModelCard.load(tmp_path / "out" / "README.md")
    score = card.data.eval_results[0]
    found = score.dataset_type, score.dataset_config, score.dataset_split, score.dataset_revision, score.dataset_args
    assert found == expected and f"Of {of} (" in card.text


def test_a_card_says_nothing_that_is_not_known_and_names_no_place_of_this_computer(tmp_path):
    folder = tmp_path / "secret_place"
    run = write_run(folder / "run", words=("DATA.DATA_PATH", str(folder)))
    record = run / "checkpoints" / "epoch_0002" / "about.yaml"
    recorded = yaml.safe_load(record.read_text(encoding="utf-8"))
    recorded["settings"]["IMPORTS"] = [str(folder / "nets.py")]
    record.write_text(yaml.safe_dump(recorded, allow_unicode=True), encoding="utf-8")
    lines = write_hub_folder(str(run), str(folder / "out"), None, None, False)
    assert any("no scores" in line for line in lines)
    card = ModelCard.load(folder / "out" / "README.md")
    assert card.data.license is card.data.datasets is card.data.eval_results is None
    assert "nets.py: add `-import=MODULE`" in card.text
    texts = [(folder / "out" / name).read_text(encoding="utf-8") for name in ("README.md", "about.yaml")]
    assert not any("secret_place" in text for text in texts)
    about = yaml.safe_load(texts[1])
    assert about["data"]["val"]["classes"] == NAMES and about["settings"]["IMPORTS"] == ["nets.py"]


def test_images_of_the_report_are_on_the_card_without_the_names_of_samples(run, tmp_path):
    pixels = [np.full((4, 5, 3), value, np.uint8) for value in (10, 200)]
    images = [(image, f"true: oak\nsample 1 of {tmp_path}") for image in pixels]
    store.save(run / store.TRAINING, [Gallery("Hardest images", images)], {})
    lines = write_hub_folder(str(run), str(tmp_path / "out"), None, None, False)
    assert any("images of the data" in line for line in lines) and lines[-1].startswith("hf upload")
    card = ModelCard.load(tmp_path / "out" / "README.md").text
    links = re.findall(r"!\[true: oak\]\((images/\d\.\w+)\)", card)
    found = [np.asarray(Image.open(tmp_path / "out" / link).convert("RGB")) for link in links]
    np.testing.assert_allclose(found, pixels, atol=3)
    assert str(tmp_path) not in card


def test_files_of_others_stay_and_earlier_ones_are_replaced_when_asked(run, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    write_hub_folder(str(run), str(out), None, None, False)
    with pytest.raises(UserError, match=r"out has model.safetensors, about.yaml, README.md: .* add -replace"):
        write_hub_folder(str(run), str(out), None, None, False)
    write_hub_folder(str(run), str(out), None, "mit", True)
    assert (out / "notes.txt").read_text() == "mine" and ModelCard.load(out / "README.md").data.license == "mit"
    assert {path.name for path in tmp_path.iterdir()} == {"run", "out"}


def test_what_has_no_record_or_no_effect_is_refused(run, tmp_path):
    shutil.copy(run / "checkpoints" / "epoch_0002" / "model.pdparams", tmp_path / "alone.pdparams")
    with pytest.raises(UserError, match=r"settings of .*alone.pdparams are unknown: -format=hub needs a run"):
        write_hub_folder(str(tmp_path / "alone.pdparams"), str(tmp_path / "out"), None, None, False)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file is a file: -format=hub writes a folder"):
        write_hub_folder(str(run), str(tmp_path / "file"), None, None, False)
    for word in ("-precision=float16", "-calibration=9", "-model=vit", "VOLUMES.OVERLAP=0.5"):
        with pytest.raises(
            UserError, match=f"export: {word.partition('=')[0]}.*-format=hub writes the trained weights unchanged"
        ):
            command.run([str(run), str(tmp_path / "out"), "-format=hub", word])
    with pytest.raises(UserError, match="-license is for the card of -format=hub"):
        command.run([str(run), str(tmp_path / "out"), "-license=mit"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("task", [name for name in list_names("task") if annotation_type("task", name) is not None])
def test_the_hub_finds_the_networks_of_each_image_task_by_what_they_do(task, tmp_path):
    (tmp_path / "README.md").write_text(format_card("mine", {"task": task, "settings": {}}, [], None, None))
    tag = ModelCard.load(tmp_path / "README.md").data.pipeline_tag
    assert tag.startswith(("image-", "object-", "keypoint-")) and ("segmentation" in tag) == ("segmentation" in task)


@pytest.mark.parametrize(
    "task, words, number, expected",
    [
        (
            "classification",
            {"NAME": "vit_tiny_patch16_224", "DEPTH": 1},
            3,
            ({"depth": 1, "img_size": [32, 48]}, NAMES),
        ),
        ("multi_label", {"NAME": "resnet18"}, 5, ({}, None)),
        ("classification", {"NAME": "resnet18", "DEPTHS": [1, 1, 1, 1]}, 3, None),
        ("classification", {"NAME": "vit"}, 3, None),
        ("image_segmentation", {"NAME": "resnet18"}, 3, None),
    ],
)
def test_classifiers_that_timm_has_are_described_for_it(monkeypatch, task, words, number, expected):
    monkeypatch.undo()  # all networks
    settings = configuration.load(["-cfg=vit_tiny_patch16_224"]).values.DATA
    data = {name: settings[name] for name in ("INTERPOLATION", "CROP_MODE", "IMAGENET_MEAN", "IMAGENET_STD")}
    data |= {"IMAGE_SIZE": [32, 48], "IMAGE_CHANNELS": 3, "CROP_PCT": 0.75, "SPLIT": "val"}
    about = {"settings": {"TASK": task, "MODEL": words, "DATA": data}, "data": {"val": {"classes": NAMES}}}
    weights = ConvertedWeights({"head.bias": np.zeros(number)}, set(), "", [], "", ())
    described = describe_for_timm(about, weights)
    if expected is None:
        assert described is None
        return
    assert described["architecture"] == words["NAME"] and described["num_classes"] == number
    assert (described.get("model_args", {}), described.get("label_names")) == expected
    assert ("problem_type" in described) == (task == "multi_label")
    del described["model_args" if expected[0] else "architecture"]
    read = parse_timm_file(described, "config.json", ExpectedInput(), is_evaluated=True)
    assert read.mean == (0.5, 0.5, 0.5) and read.crop_pct == 0.75 and read.image_size == [32, 48]
    assert read.interpolation == data["INTERPOLATION"] and read.crop_mode == data["CROP_MODE"]
