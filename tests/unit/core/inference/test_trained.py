"""What is known of trained weights without their data: settings, classes, input, digests, and their model."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import paddle
import pytest
import yaml
from safetensors import numpy as tensors
from support.refusals import refusal_of
from support.registrations import forgotten
from support.trainings.trained import network, write_weights

from paddlevit_dist import Manifest, UserError, create_model, register_feature
from paddlevit_dist.core.inference.ensemble import require_ensemble
from paddlevit_dist.core.inference.trained import (
    _find_described,
    build_configuration,
    build_trained,
    open_source,
    read_trained_meta,
)
from paddlevit_dist.core.tasks.protocols import load_meta
from paddlevit_dist.core.tasks.task_factory import make_task

NAMES = ["cat", "ant", "bee"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return write_weights(tmp_path_factory.mktemp("classifier"), NAMES)


@pytest.fixture
def unnamed(tmp_path):
    """Weights of three classes without settings, and a recipe of their network."""
    paddle.save(network(3).state_dict(), str(tmp_path / "weights.pdparams"))
    sizes = "PATCH_SIZE: 8, EMBED_DIM: 16, DEPTH: 1, NUM_HEADS: 2"
    (tmp_path / "vit.yaml").write_text(f"MODEL: {{NAME: vit, {sizes}}}\nDATA: {{IMAGE_SIZE: 16}}\n")
    return str(tmp_path / "weights.pdparams"), str(tmp_path / "vit.yaml")


def test_the_first_split_with_classes_names_them_and_the_configuration_has_their_number():
    train, val = {"number of classes": 4, "samples": 9}, {"classes": NAMES, "number of classes": 3, "samples": 5}
    about = {"data": {"odd": None, "train": train, "val": val}, "input": {"landmarks": ["nose", "ear"]}}
    meta = read_trained_meta({**about, "input": {"size": 16}}, 5)
    assert meta[:4] == (5, tuple(NAMES), {"size": 16}, val)
    assert read_trained_meta({**about, "input": {"size": 16}}).num_classes == 4
    assert read_trained_meta({"data": {"val": {"classes": NAMES}}}).num_classes == 3
    assert read_trained_meta({"data": [], "input": None})[:4] == (None, None, {}, {})
    assert read_trained_meta({}, 7)[:4] == (7, None, {}, {})


TIMMS = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "input_size": [3, 64, 64], "crop_pct": 0.8}
NAMED = {"num_classes": 3, "label_names": NAMES, "pretrained_cfg": TIMMS}


@pytest.mark.parametrize("content", [NAMED, {**TIMMS, "num_classes": 3, "labels": NAMES}])
@pytest.mark.parametrize("named", ["", "/model.safetensors"])
def test_a_folder_with_timms_description_says_its_network_classes_and_input(tmp_path, content, named):
    (tmp_path / "model.safetensors").write_bytes(tensors.save({"fc.bias": np.zeros(3, np.float32)}))
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "resnet18.a1_in1k", **content}))
    lines = []
    opened = open_source(f"{tmp_path}{named}", "predict", log=lines.append)
    model, data = opened.config.MODEL, opened.config.DATA
    assert (model.NAME, opened.learned.num_classes, opened.learned.class_names) == ("resnet18", 3, tuple(NAMES))
    assert (data.IMAGENET_MEAN, data.IMAGENET_STD) == (TIMMS["mean"], TIMMS["std"])
    assert (data.IMAGE_SIZE, data.CROP_PCT) == (64, 0.8)
    assert lines == [f"network: resnet18 ({tmp_path / 'config.json'})"]
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "own_net", **content}))
    unknown = refusal_of(open_source, f"{tmp_path}{named}", "predict")
    assert "own_net" in unknown or "models of timm need Paddle 3" in unknown  # which 2.6 says first
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "resnet", "architectures": ["ResNetModel"]}))
    assert "that is known; name the recipe" in refusal_of(open_source, f"{tmp_path}{named}", "predict")


_VIT = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "patch_size": 16,
}
_SWIN = {
    "image_size": 224,
    "patch_size": 4,
    "embed_dim": 96,
    "depths": [2, 2, 6, 2],
    "num_heads": [3, 6, 12, 24],
    "window_size": 7,
}
_DINO = {
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "mlp_ratio": 4,
    "patch_size": 14,
    "image_size": 518,
}


@pytest.mark.parametrize(
    ("kind", "content", "words"),
    [
        ("ViT", {"model_type": "vit", "image_size": 224, **_VIT}, ["MODEL.NAME=vit_base_patch16_224"]),
        ("ViT", {"model_type": "vit", "image_size": 384, **_VIT}, ["MODEL.NAME=vit_base_patch16_384"]),
        (
            "Swin",
            {"model_type": "swin", **_SWIN, "mlp_ratio": 4.0, "qkv_bias": True},
            ["MODEL.NAME=swin_tiny_patch4_window7_224"],
        ),
        (
            "ConvNext",
            {"model_type": "convnext", "depths": [3, 3, 9, 3], "hidden_sizes": [96, 192, 384, 768]},
            ["MODEL.NAME=convnext_tiny"],
        ),
        (
            "ResNet",
            {
                "model_type": "resnet",
                "depths": [3, 4, 6, 3],
                "hidden_sizes": [256, 512, 1024, 2048],
                "embedding_size": 64,
            },
            ["MODEL.NAME=resnet50"],
        ),
        (
            "ResNet",
            {
                "model_type": "resnet",
                **{"layer_type": "basic", "depths": [1, 2], "hidden_sizes": [8, 16], "embedding_size": 4},
            },
            ["MODEL.NAME=resnet18", {"depths": [1, 2], "is_bottleneck": False, "dims": [8, 16], "stem_dim": 4}],
        ),
        (
            "Dinov2WithRegisters",
            {"model_type": "dinov2_with_registers", "num_register_tokens": 4, **_DINO},
            [
                "MODEL.NAME=vit",
                {
                    **{"patch_size": 14, "embed_dim": 384, "depth": 12, "num_heads": 6, "mlp_ratio": 4.0},
                    **{"init_values": 1.0, "any_size": True, "resampling": "bicubic", "registers": 4},
                    "positions": "patches",
                },
            ],
        ),
    ],
)
def test_transformers_description_of_a_classifier_names_its_network(kind, content, words):
    found = _find_described({"architectures": [f"{kind}ForImageClassification"], **content})
    assert [found[0], *(json.loads(word.removeprefix("MODEL.OPTIONS=")) for word in found[1:])] == words
    assert _find_described({"architectures": [f"{kind}Model"], **content}) is None
    damaged = {name: value for name, value in content.items() if not name.endswith(("depths", "layers"))}
    assert _find_described({"architectures": [f"{kind}ForImageClassification"], **damaged}) is None


def test_a_folder_of_transformers_predicts_what_its_network_computes(tmp_path):
    options = {"embed_dim": 16, "depth": 2, "num_heads": 4, "patch_size": 8, "mlp_ratio": 2.0, "qkv_bias": True}
    network = create_model("vit", num_classes=3, image_size=16, **options)
    tensors_by_name = {}
    for name, value in network.state_dict().items():
        array = value.numpy()
        is_matrix = array.ndim == 2 and name.endswith(".weight")
        tensors_by_name[name] = np.ascontiguousarray(array.T) if is_matrix else array
    (tmp_path / "model.safetensors").write_bytes(tensors.save(tensors_by_name))
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    content = {"model_type": "vit", "architectures": ["ViTForImageClassification"], "image_size": 16, "patch_size": 8}
    (tmp_path / "config.json").write_text(json.dumps({**content, **sizes, "id2label": dict(enumerate("abc"))}))
    assert "config.json has no preprocessor_config.json next to it" in refusal_of(open_source, str(tmp_path), "predict")
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    opened = open_source(str(tmp_path), "predict")
    assert opened.learned.class_names == ("a", "b", "c") and opened.config.DATA.IMAGE_SIZE == 16
    model, _ = build_trained(make_task(opened.config), opened)
    images = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype("f4"))
    network.eval()
    np.testing.assert_allclose(model(images).numpy(), network(images).numpy(), atol=1e-5)


def test_settings_of_training_do_not_apply_to_stored_weights_and_no_code_that_they_name_runs(tmp_path):
    (tmp_path / "own.py").write_text("raise AssertionError('weights alone have run it')")
    stored = {"MODEL": {"NAME": "vit", "RESUME": "auto", "PRETRAINED_PART": "teacher", "DEPTH": 3}}
    stored |= {"SAVE_PREDICTIONS": True, "ALLOW_CHANGES": True, "EVAL": False, "DATA": {"DATASET": "digits"}}
    stored["IMPORTS"] = [str(tmp_path / "own.py")]
    values = build_configuration("w.pdparams", stored, words=["TRAIN.BASE_LR=0.5"]).values
    assert (values.EVAL, values.SAVE_PREDICTIONS, values.ALLOW_CHANGES) == (True, False, False)
    model = values.MODEL
    assert (model.PRETRAINED, model.PRETRAINED_PART, model.RESUME, model.DEPTH) == ("w.pdparams", None, None, 3)
    assert values.TRAIN.BASE_LR == 0.5
    with pytest.raises(UserError, match="settings of w.pdparams"):
        build_configuration("w.pdparams", {**stored, "TRAIN": {"BASE_LRR": 1}})


def test_weights_with_a_recipe_are_of_a_folder_of_images_unless_it_names_data(unnamed):
    weights, recipe = unnamed
    values = build_configuration(weights, None, recipe, ["MODEL.DROPOUT=0.25"]).values
    assert (values.EVAL, values.DATA.DATASET, values.MODEL.DROPOUT) == (True, "folder", 0.25)
    assert (values.MODEL.PRETRAINED, values.MODEL.RESUME) == (weights, None)
    assert build_configuration(weights, None, recipe, ["-dataset=digits"]).values.DATA.DATASET == "digits"
    model = "MODEL: {TYPE: minkunet, NAME: mink_classifier14}"
    other = Path(recipe).with_name("solids.yaml")
    other.write_text(f"TASK: shape_classification\n{model}\n")
    points = build_configuration(weights, None, str(other)).values
    assert points.DATA.DATASET != "folder"


def test_names_come_from_the_caller_else_the_run_else_files_without_gaps(classifier, unnamed, tmp_path):
    assert open_source(str(classifier), "predict").learned.class_names == tuple(NAMES)
    for words in ([], ["DATA.BATCH_SIZE_EVAL=3"]):
        other = open_source(str(classifier), "predict", class_names=["x", "y", "z"], words=words)
        assert other.learned.class_names == ("x", "y", "z")
    weights, recipe = unnamed
    for names, expected in ((["a", "b", "c"], ("a", "b", "c")), (["a", "N/A", "c"], None), (["a", "", "c"], None)):
        (tmp_path / "config.json").write_text(json.dumps({"id2label": dict(enumerate(names))}))
        assert open_source(weights, "predict", recipe=recipe).learned.class_names == expected
    (tmp_path / "config.json").write_text(json.dumps({"id2label": dict(enumerate("abc"))}))
    given = open_source(weights, "predict", recipe=recipe, class_names=["x", "y", "z"])
    assert given.learned.class_names == ("x", "y", "z")


def test_given_names_have_the_number_and_the_order_of_the_weights(classifier, unnamed, tmp_path):
    weights, recipe = unnamed
    for names in (["background", *NAMES], NAMES[:2]):
        told = f"has 3 classes, and there are {len(names)} class names: give 3, in the order cat,"
        with pytest.raises(UserError, match=told):
            open_source(str(classifier), "predict", class_names=names)
        opened = open_source(weights, "predict", recipe=recipe, class_names=names)
        with pytest.raises(UserError, match=f"{len(names)} class names: give 3, in the order of its outputs"):
            build_trained(make_task(opened.config), opened)
    with pytest.raises(UserError, match="has the class 'bee' at another place: give the names in the order cat"):
        open_source(str(classifier), "predict", class_names=["x", "bee", "y"])
    with pytest.raises(UserError, match="has the class 'BEE' at another place"):
        open_source(str(classifier), "predict", class_names=["Cat", "BEE", "x"])
    twins = str(write_weights(tmp_path / "twins", ["b", "a", "A"]))
    assert open_source(twins, "predict", class_names=["c", "a", "A"]).learned.class_names == ("c", "a", "A")
    more = write_weights(tmp_path / "more", NAMES, "MODEL.NUM_CLASSES=5", num_classes=5)
    for names in (["x", "y", "z"], ["cat", "ant", "bee", "v", "w"]):
        assert open_source(str(more), "predict", class_names=names).learned.class_names == tuple(names)
    with pytest.raises(UserError, match="has 5 classes, and there are 4 class names"):
        open_source(str(more), "predict", class_names=[*NAMES, "v"])


def test_members_of_other_classes_are_refused_though_the_same_names_are_given(classifier, tmp_path):
    other, given = write_weights(tmp_path / "other", ["bee", "cat", "dog"]), ["x", "y", "z"]
    sources = [open_source(str(weights), "predict", class_names=given) for weights in (classifier, other)]
    assert sources[0].learned.class_names == sources[1].learned.class_names
    with pytest.raises(UserError, match=r"its list of classes is \['bee', 'cat', 'dog'\], not \['cat', 'ant', 'bee'\]"):
        require_ensemble(make_task(sources[0].config), sources)


def test_what_a_command_sets_may_differ_from_the_weights_and_other_words_apply_to_it(classifier):
    words = ["DATA.BATCH_SIZE_EVAL=3"]
    source = open_source(str(classifier), "predict", options={"DATA.IMAGE_SIZE": 32}, words=words)
    assert (source.config.DATA.IMAGE_SIZE, source.config.DATA.BATCH_SIZE_EVAL) == (32, 3)


def test_sources_that_are_not_weights_of_a_run_are_refused(unnamed, tmp_path):
    weights, _ = unnamed
    with pytest.raises(UserError, match="^inspect: the model of .*weights.pdparams is unknown: .*; name a model$"):
        open_source(weights, "inspect", advice="name a model")
    (tmp_path / "net.pdiparams").write_bytes(b"0")
    for source in ("net.pdiparams", "net", "net.ONNX"):
        with pytest.raises(UserError, match=f"^export: .*{source} is an exported model; give the weights"):
            open_source(str(tmp_path / source), "export")
    (tmp_path / "notes.txt").write_text("no weights")
    with pytest.raises(UserError, match=r"^predict: .*notes.txt does not contain weights; expected .*\.pdparams"):
        open_source(str(tmp_path / "notes.txt"), "predict")


def test_digests_change_with_weights_settings_names_and_input_alone(classifier, unnamed, tmp_path):
    plain = open_source(str(classifier), "predict").digests()
    shutil.copytree(classifier.parent, tmp_path / "copy")
    copied = tmp_path / "copy" / "weights.pdparams"
    assert open_source(str(copied), "predict").digests() == plain

    def differing(source):
        found = source.digests()
        return {name.removesuffix("_sha256") for name in found if found[name] != plain[name]}

    assert differing(open_source(str(copied), "predict", class_names=["cat", "ant", "dog"])) == {"settings"}
    about = yaml.safe_load((tmp_path / "copy" / "about.yaml").read_text(encoding="utf-8"))
    (tmp_path / "copy" / "about.yaml").write_text(yaml.safe_dump({**about, "input": {"mean": 3}}))
    assert differing(open_source(str(copied), "predict")) == {"settings"}
    paddle.save(network(3, seed=1).state_dict(), str(copied))
    (tmp_path / "copy" / "about.yaml").write_text(yaml.safe_dump(about))
    assert differing(open_source(str(copied), "predict")) == {"weights"}
    weights, recipe = unnamed
    moved = shutil.copy(weights, tmp_path / "moved.pdparams")
    digests = [open_source(str(path), "predict", recipe=recipe).digests() for path in (weights, moved)]
    assert digests[0] == digests[1]


@pytest.fixture
def accelerated():
    """The models whose layers would have been replaced by compiled ones."""
    models = []
    with forgotten():
        register_feature(Manifest("acme", functions={"accelerate": models.append}))
        yield models


def test_a_model_has_the_weights_classes_and_evaluates(classifier, unnamed, accelerated):
    image = paddle.to_tensor(np.linspace(-1, 1, 3 * 256, dtype="float32").reshape(1, 3, 16, 16))
    expected = network(3)(image).numpy()
    weights, recipe = unnamed
    for source in (open_source(str(classifier), "predict"), open_source(weights, "predict", recipe=recipe)):
        source = source._replace(learned=source.learned._replace(num_classes=None))
        model, report = build_trained(make_task(source.config), source)
        assert not model.training and not report.missing and accelerated.pop() is model and not accelerated
        np.testing.assert_allclose(model(image).numpy(), expected, rtol=1e-4, atol=1e-5)
    state = network(3).state_dict()
    for part, said in (("head", "weights.pdparams has no classifier for vit"), ("patch_embed", "patch_embed")):
        paddle.save({name: value for name, value in state.items() if part not in name}, weights)
        with pytest.raises(UserError, match=said):
            build_trained(make_task(source.config), source)


def test_weights_of_several_files_have_the_digest_of_all(classifier, tmp_path):
    about = (classifier.parent / "about.yaml").read_text(encoding="utf-8")
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "about.yaml").write_text(about, encoding="utf-8")
    state = network(3).state_dict()
    half = {name: number % 2 for number, name in enumerate(state)}
    for number in range(2):
        part = {name: state[name].numpy() for name in state if half[name] == number}
        np.savez(folder / f"part{number}.npz", **part)
    index = folder / "weights.npz.index.json"
    index.write_text(json.dumps({"weight_map": {name: f"part{number}.npz" for name, number in half.items()}}))
    source = open_source(str(index), "predict")
    digests = [source.digests()]
    content = (folder / "part1.npz").read_bytes()
    (folder / "part1.npz").write_bytes(content + b"0")
    digests.append(source.digests())
    (folder / "part1.npz").write_bytes(content)
    assert digests[0] == source.digests() and digests[0]["settings_sha256"] == digests[1]["settings_sha256"]
    assert digests[0]["weights_sha256"] != digests[1]["weights_sha256"]
    (folder / "part0.npz").unlink()
    with pytest.raises(UserError, match="index.json cannot be read: No such file or directory$"):
        source.digests()


def test_a_digest_is_that_of_the_file(classifier):
    digests = open_source(str(classifier), "predict").digests()
    assert digests["weights_sha256"] == hashlib.sha256(classifier.read_bytes()).hexdigest()


def test_words_change_the_digest_and_lines_about_words_without_effect_are_logged(classifier):
    said: list[str] = []
    words = ["EVAL_AMP=true", "TRAIN.BASE_LR=0.1"]
    source = open_source(str(classifier), "predict", words=words, log=said.append, options={"DATA.BATCH_SIZE": 5})
    assert said == ["TRAIN.BASE_LR 0.1 (command line): no effect: it is for training"]
    plain = open_source(str(classifier), "predict")
    changed = {name: value for name, value in source.settings.items() if plain.settings.get(name) != value}
    assert changed == {"EVAL_AMP": True, "TRAIN.BASE_LR": 0.1} and source.config.DATA.BATCH_SIZE == 5
    assert source.digests() != plain.digests()


def test_a_part_of_the_weights_is_chosen_by_the_caller_else_by_the_settings(unnamed):
    weights, recipe = unnamed
    states = [network(3, seed).state_dict() for seed in range(3)]
    paddle.save(dict(zip(("student", "teacher", "other"), states)), weights)
    source = open_source(weights, "predict", recipe=recipe, options={"MODEL.PRETRAINED_PART": "teacher"})
    for part, expected in ((None, states[1]), ("other", states[2])):
        model, _ = build_trained(make_task(source.config), source, part)
        np.testing.assert_array_equal(
            model.state_dict()["head.weight"].numpy(), expected["head.weight"].numpy(), strict=True
        )


def test_the_task_learns_the_number_of_classes_that_only_the_weights_have(unnamed):
    source = open_source(unnamed[0], "predict", recipe=unnamed[1])
    task = make_task(source.config)
    load_meta(task, source.learned)
    assert task.num_classes is None
    build_trained(task, source)
    assert task.num_classes == 3


def test_the_working_folder_is_a_source_of_weights_as_by_its_name(classifier, monkeypatch):
    monkeypatch.chdir(classifier.parent)
    assert open_source(".", "predict").weights == str(classifier)
    with pytest.raises(UserError, match="predict: the path of the weights is empty: name a run's folder"):
        open_source("", "predict")
    with pytest.raises(UserError, match="^/ contains no model.pdparams"):
        open_source("/", "predict")


def test_a_file_beside_weights_is_not_taken_for_weights(classifier):
    about = classifier.with_name("about.yaml")
    with pytest.raises(UserError, match=r"about.yaml does not contain weights; expected a run's folder, a checkpoint"):
        open_source(str(about), "predict")


def test_a_model_without_classes_needs_no_number_of_them(monkeypatch, unnamed):
    weights, recipe = unnamed
    source = open_source(weights, "predict", recipe=recipe)
    paddle.save(paddle.nn.Linear(2, 1).state_dict(), weights)
    asked = []

    class Regression:
        def build_model(self, num_classes):
            asked.append(num_classes)
            return paddle.nn.Linear(2, 1)

    model, _ = build_trained(Regression(), source._replace(learned=source.learned._replace(num_classes=None)))
    assert asked == [1, 1] and model.weight.shape == [2, 1]
    build_trained(Regression(), source._replace(learned=source.learned._replace(num_classes=7)))
    assert asked[2:] == [7]


def test_a_recipe_of_another_network_or_input_than_the_weights_is_refused(classifier, tmp_path):
    """With weights of one shape it would give other answers without a word."""
    assert open_source(str(classifier), "predict", recipe="vit_digits", words=["-allow_changes"]).config.ALLOW_CHANGES
    about = yaml.safe_load((classifier.parent / "about.yaml").read_text())
    recipe = tmp_path / "same.yaml"
    recipe.write_text(yaml.safe_dump(about["settings"]))
    assert open_source(str(classifier), "predict", recipe=str(recipe)).config.MODEL == (
        open_source(str(classifier), "predict").config.MODEL
    )
    for section, key, value, said in (
        ("MODEL", "NUM_HEADS", 1, "is of another network: MODEL.NUM_HEADS 2 there, 1 here"),
        ("DATA", "CROP_PCT", 0.5, "was trained with different preprocessing: DATA.CROP_PCT"),
    ):
        changed = {**about["settings"], section: {**about["settings"][section], key: value}}
        recipe.write_text(yaml.safe_dump(changed))
        told = refusal_of(open_source, str(classifier), "predict", recipe=str(recipe))
        assert said in told and f"remove -cfg={recipe}, as the settings are known, or add -allow_changes" in told
