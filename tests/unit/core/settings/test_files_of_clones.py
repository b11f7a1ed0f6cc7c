"""YAML files that lie in a clone of PaddleViT: what of them holds here, and whose code builds the network."""

import os

import pytest
import yaml
from support.hosts.paddlevit_clone import write_family

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.directory_names import MODEL, STATE
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.registry.register import register_model
from paddlevit_dist.core.settings import load

# A file of PaddleViT's for a model that is here.
VIT = """
DATA: {IMAGE_SIZE: 224, CROP_PCT: 0.875}
MODEL: {TYPE: vit, NAME: vit_base_patch16_224, PATCH_SIZE: 16, EMBED_DIM: 768, DEPTH: 12, NUM_HEADS: 12}
TRAIN: {GRAD_CLIP: 1.0}
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return os.path.relpath(write_family(tmp_path / "PaddleViT", "plain"))


def test_the_file_names_its_network_and_its_config_py_gives_what_it_does_not_state(file):
    run = load([f"-cfg={file}"])

    model, train, data = run.values.MODEL, run.values.TRAIN, run.values.DATA
    assert model.NAME == f"paddlevit:{os.path.abspath(file)}" and model.DROPPATH == 0.1
    assert model.EMBED_DIM is None  # the network's own files read it
    assert (data.IMAGE_SIZE, data.CROP_PCT, data.IMAGENET_MEAN) == (16, 0.9, [0.485, 0.456, 0.406])
    assert (train.WARMUP_EPOCHS, train.BASE_LR, train.SMOOTHING, train.WEIGHT_DECAY) == (3, 2e-3, 0.1, 0.03)
    assert train.OPTIMIZER.NAME == "AdamW" and train.TEACHER_MODEL is None
    folder = os.path.abspath(os.path.dirname(os.path.dirname(file)))
    runs, computed, defaults = run.notices
    assert runs == (
        f"{file}:7: plain_tiny: the network is built by code of {folder}, which is run; code of no other folder is"
    )
    assert computed == f"{folder}/config.py: TRAIN.END_LR = 53 - 4 is ignored: it is not a literal"
    assert defaults.startswith(f"{file}: from {folder}/config.py: DATA.IMAGENET_MEAN [0.485, 0.456, 0.406], ")
    assert run.sources["TRAIN.BASE_LR"] == f"{folder}/config.py"


def test_the_command_line_and_a_file_of_the_user_win_over_both(file):
    with open("mine.yaml", "w") as opened:
        opened.write(f"BASE: {file}\nTRAIN: {{WARMUP_EPOCHS: 1, WEIGHT_DECAY: 0.5}}\n")
    run = load(["-cfg=mine.yaml", "TRAIN.BASE_LR", "0.5", "MODEL.DROPPATH", "0"])
    assert run.values.MODEL.NAME.endswith("plain_tiny.yaml") and run.values.MODEL.DROPPATH == 0
    train = run.values.TRAIN
    assert (train.BASE_LR, train.WARMUP_EPOCHS, train.WEIGHT_DECAY, train.SMOOTHING) == (0.5, 1, 0.5, 0.1)


def test_nothing_of_the_clone_is_run_for_a_model_of_ours_whose_numbers_it_has(tmp_path, refuse):
    file = write_family(tmp_path, "vit")
    file.write_text(VIT)
    config = file.parents[1] / "config.py"
    config.write_text(f"raise RuntimeError('run')\n{config.read_text()}")

    run = load([f"-cfg={file}"])

    assert run.values.MODEL.NAME == "vit_base_patch16_224" and run.values.MODEL.EMBED_DIM == 768
    assert run.values.TRAIN.BASE_LR == 2e-3 and run.values.TRAIN.WARMUP_EPOCHS == 3  # not those of PaddleViT's ViT
    assert run.values.DATA.IMAGENET_MEAN == [0.5] * 3  # the variant's
    config.write_text(config.read_text().replace("SMOOTHING = 0.1", "SMOOTHING = 3"))
    other = write_family(tmp_path, "other", further="")
    path = other.parents[1] / "config.py"
    path.write_text(path.read_text().replace("SMOOTHING = 0.1", "SMOOTHING = 3"))
    said = f"{path}: TRAIN.SMOOTHING is 3: expected a number >= 0 and < 1; set it in the YAML file"
    assert refuse(load, [f"-cfg={other}"]) == said


def test_a_model_that_the_user_has_registered_comes_first(file, monkeypatch):
    register_model("plain_tiny", "my_things:Plain")
    try:
        with pytest.raises(UserError, match="MODEL.ETA"):
            load([f"-cfg={file}"])
    finally:
        del REGISTRY.models["plain_tiny"], REGISTRY.registrations["model", "plain_tiny"]


def test_a_name_of_ours_with_another_type_is_the_clone_s(tmp_path, refuse):
    file = write_family(tmp_path, "mae")
    file.write_text(VIT.replace("TYPE: vit", "TYPE: MAE"))
    assert load([f"-cfg={file}"]).values.MODEL.NAME == f"paddlevit:{file}"
    file.write_text(VIT.replace("TYPE: vit", "TYPE: MAE, MAE_PRETRAIN: True"))
    assert refuse(load, [f"-cfg={file}"]).endswith(
        ": MODEL.MAE_PRETRAIN: pre-training is not taken: only classifiers are"
    )


def test_keys_that_the_clone_alone_has_are_told(file):
    with open(file, "a") as opened:
        opened.write("    MULTI_SCALE_SAMPLER_DDP: False\n")
    assert (
        f"{file}:12: TRAIN.MULTI_SCALE_SAMPLER_DDP is read by the clone's own files alone"
        in load([f"-cfg={file}"]).notices
    )


def test_code_that_only_weights_name_is_not_run(file, tmp_path, monkeypatch, refuse):
    config = tmp_path / "config.yaml"
    config.write_text(f"TASK: classification\nMODEL: {{NAME: 'paddlevit:{os.path.abspath(file)}'}}\n")
    assert load([f"-cfg={config}"]).values.MODEL.NAME.startswith("paddlevit:")  # the user names the file

    message = refuse(lambda: load([f"-cfg={config}"], is_trusted=False))

    assert message.startswith(
        f"{config}:2: MODEL.NAME paddlevit:{os.path.abspath(file)}: weights alone do not run the code of a clone: "
    )
    assert message.endswith(f"set PADDLEVIT={tmp_path}/PaddleViT")
    monkeypatch.chdir(tmp_path / "PaddleViT")
    assert refuse(lambda: load([f"-cfg={config}"], is_trusted=False)) == message
    monkeypatch.setenv("PADDLEVIT", f"{tmp_path}/PaddleViT")
    assert load([f"-cfg={config}"], is_trusted=False).values.MODEL.NAME.endswith("plain_tiny.yaml")
    # Weights of another machine, whose clone lay elsewhere.
    config.write_text(config.read_text().replace(str(tmp_path), "/elsewhere"))
    assert load([f"-cfg={config}"], is_trusted=False).values.MODEL.NAME.startswith("paddlevit:/elsewhere")
    monkeypatch.setenv("PADDLEVIT", str(tmp_path))
    assert "plain_tiny.yaml is not there: expected" in refuse(lambda: load([f"-cfg={config}"], is_trusted=False))


def test_a_probe_of_weights_runs_no_code_that_these_alone_name(file, tmp_path, monkeypatch, refuse):
    about = {"settings": {"TASK": "classification", "MODEL": {"NAME": f"paddlevit:{os.path.abspath(file)}"}}}
    for name, text in ((MODEL, ""), (STATE, ""), ("about.yaml", yaml.safe_dump(about))):
        (tmp_path / name).write_text(text)
    words = ["-cfg=probe_linear", f"-pretrained={tmp_path / MODEL}", f"-data_path={tmp_path}"]

    assert refuse(load, words).endswith(f"set PADDLEVIT={tmp_path}/PaddleViT")
    monkeypatch.setenv("PADDLEVIT", f"{tmp_path}/PaddleViT")
    assert load(words).values.MODEL.NAME == f"paddlevit:{os.path.abspath(file)}"


@pytest.mark.parametrize(
    ("folder", "model"),
    [
        ("object_detection/DETR", "MODEL: {BACKBONE: resnet50, TRANS: {NUM_ENCODERS: 6}}"),
        ("object_detection/PVTv2", "MODEL: {TYPE: PVTv2, NAME: pvtv2_b0, TRANS: {EMBED_DIMS: [32, 64], FPN: 4}}"),
        ("gan/transGAN", "{DATA: {MAX_GEN_NUM: 50000}, MODEL: {NAME: transgan}}"),
        ("semantic_segmentation", "{DATA: {BATCH_SIZE_VAL: 1}, MODEL: {NAME: Segformer}}"),
    ],
)
def test_files_of_other_tasks_are_not_answered_with_a_key(folder, model, tmp_path, refuse):
    file = tmp_path / "PaddleViT" / folder / "configs" / "some" / "file.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(model, encoding="utf-8")
    assert " is not a known key" in refuse(load, [f"-cfg={file}"])  # a folder of this name is not yet a clone
    (file.parents[2] / "config.py").write_text("def get_config(): pass", encoding="utf-8")
    reason = "not here: of a clone of PaddleViT only image_classification is taken"
    assert refuse(load, [f"-cfg={file}"]) == f"{file}: {reason}"
    file.write_text("MODEL: {TRANS: {DEPTH: 2}}", encoding="utf-8")  # a key of classifiers of that time
    assert refuse(load, [f"-cfg={file}"]) == f"{file}: {reason}"
