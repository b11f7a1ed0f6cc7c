"""Foundation backbones of timm and transformers, reproduced from weights under their names: tokens, maps, pooled
features, logits and gradients at native and other rectangular sizes."""

import functools
import itertools

import numpy as np
import paddle
import pytest
from support.networks import golden
from support.networks.cheap_weights import weights_of_zero

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.models import rotary

NAME = "foundation"
GOLDEN, ARRAYS = golden.description(NAME), golden.arrays(NAME)
SEED, ALLOWED = GOLDEN["seed"], 10  # times the error of torch's own float32 run
POOLS = {"token": "token", "avg": "average", "map": "attention"}
OPTIONS = {"img_size": "image_size", "init_values": "init_values", "dims": "dims", "depths": "depths"}
OPTIONS |= {name: name for name in ("num_classes", "embed_dim", "depth", "num_heads", "mlp_ratio", "patch_size")}
LARGE = 3_000_000  # parameters, from which a case takes seconds: those are of the night
HUGGING_FACE = [
    name for name, about in GOLDEN["models"].items() if isinstance(about.get("huggingface", {}).get("keys"), dict)
]


def cases(is_large):
    """(name, size) of the models that are large or not."""
    return [
        (name, size)
        for name, about in GOLDEN["models"].items()
        for size in about["sizes"]
        if (about["parameters"] > LARGE) == is_large
    ]


def make_model(about, **options):
    """Ours, by timm's name and timm's arguments."""
    for argument, value in about["config"]["timm_arguments"].items():
        if argument == "global_pool":
            options.setdefault("pool", POOLS[value])
            continue
        packed = about["config"].get("mlp", {}).get("kind") == "swiglu_packed"
        is_counted_twice = argument == "mlp_ratio" and packed and about["config"]["class"] == "VisionTransformer"
        options.setdefault(OPTIONS[argument], value / 2 if is_counted_twice else value)
    if "maps_after_blocks" in about:
        options.setdefault("feature_depths", [block + 1 for block in about["maps_after_blocks"]])
    with weights_of_zero():
        model = create_model(about["name"], **options)
    model.eval()
    return model


def make_state(about):
    return golden.weights(SEED, about["state"])


def make_images(size):
    height, width = map(int, size.split("x"))
    return paddle.to_tensor(golden.recipe().golden_image(SEED, 2, max(height, width))[:, :, :height, :width])


def make_samples(x, count):
    """See ``samples`` of the golden file."""
    x = np.asarray(x)
    return x.ravel()[np.array([i * 2654435761 % x.size for i in range(count)])]


def compare(found, key, error, entry):
    expected = ARRAYS.get(f"{entry}/{key}_samples", ARRAYS.get(f"{entry}/{key}"))
    if expected is None:
        return 0
    found = found.numpy()
    found = make_samples(found, expected.size) if f"{entry}/{key}_samples" in ARRAYS else found
    assert found.shape == expected.shape, key
    assert np.abs(found - expected).max() <= ALLOWED * error, (key, np.abs(found - expected).max(), error)
    return 1


@functools.lru_cache(maxsize=2)  # for all sizes, which follow each other
def loaded(name, **options):
    about = GOLDEN["models"][name]
    model = make_model(about, **options)
    load_weights(model, make_state(about), strict=about["config"]["classes"] > 0)
    return about, model


def check_gradients(about, found, errors, model, output, tokens):
    weight = golden.recipe().golden_weight
    loss = sum(
        (x.astype("float64") * paddle.to_tensor(weight(SEED, f"loss.{key}", tuple(x.shape))).astype("float64")).sum()
        for key, x in (("output", output), ("tokens", tokens))
    )
    model.clear_gradients()  # of other sizes
    loss.backward()
    # A sum of both signs: torch's error of this one number may be as good as none.
    assert abs(float(loss) - found["loss"]) <= ALLOWED * max(errors["loss"], errors["pre_logits"])
    gradients = {key: value.grad for key, value in model.named_parameters()}
    for key, expected in found["gradient_norms"].items():
        ours = key.replace("gamma_", "ls") + ".gamma" if ".gamma_" in key else key
        norm = float(np.linalg.norm(gradients[ours].numpy().astype(np.float64)))
        assert abs(norm / expected - 1) <= ALLOWED * errors["gradient_norms_relative"], key


@pytest.mark.parametrize("name, size", cases(is_large=False))
def test_golden_tokens_features_and_gradients(name, size):
    require_tokens_features_and_gradients(name, size)


def require_tokens_features_and_gradients(name, size):
    about, model = loaded(name)
    found, entry, images = about["sizes"][size], f"{name}/{size}", make_images(size)
    errors, compared = found["float32_error"], 0
    assert sum(int(parameter.size) for parameter in model.parameters()) == about["parameters"]
    maps = model.feature_maps(images)
    if about["config"]["class"] == "ConvNeXt":
        tokens, after, map_errors = maps[-1], range(len(maps)), errors["maps"]
        normed = model.head["norm"](tokens.transpose([0, 2, 3, 1])).flatten(1, 2)
        compared += compare(normed, "patch_tokens", map_errors[-1], entry)
    else:
        x, tokens, after = model.embedded(images), model.tokens(images), about["maps_after_blocks"]
        compared += compare(x, "embedded", errors["embedded"], entry)
        for number, block in enumerate(model.blocks):
            x = model.pass_block(block, x, model.find_grid(images))
            compared += compare(x, f"block{number}", errors.get(f"block{number}"), entry)
        map_errors = [errors[f"block{number}"] for number in after]
        compared += compare(tokens, "tokens", errors["tokens"], entry)
        patches = tokens[:, model.num_prefix_tokens :]
        compared += compare(patches.mean(axis=1), "patch_mean", errors["tokens"], entry)
        compared += compare(tokens[:, 0], "class_token", errors["tokens"], entry) if model.has_class_token else 0
        if model.positions is not None:
            compared += compare(
                model.resample_positions(model.find_grid(images)), "position_table", errors["embedded"], entry
            )
    for number, image, error in zip(after, maps, map_errors):
        compared += compare(image, f"map{number}", error, entry)
    pooled = output = model.forward_features(images)
    compared += compare(pooled, "pre_logits", errors["pre_logits"], entry)
    if about["config"]["classes"]:
        output = model(images)
        compared += compare(output, "logits", errors["logits"], entry)
    stored = [key for key in ARRAYS if key.startswith(f"{entry}/")]
    elsewhere = ("_normed_samples", "rope", "rope_samples", "_offset", "_antialias", "_gelu", "_periods_samples")
    assert compared == len([key for key in stored if not key.endswith(elsewhere)])
    if "loss" in found:
        check_gradients(about, found, errors, model, output, tokens)


OTHER_WAYS = {
    "pre_logits_offset": {"resampling": "offset"},
    "pre_logits_no_antialias": {"resampling": "bicubic"},
    "pre_logits_other_gelu": {"activation": None},
}


@pytest.mark.parametrize("key", OTHER_WAYS)
def test_golden_other_ways_of_positions_and_activation(key):
    """Of DINOv2's authors, of transformers, and of SigLIP's."""
    entries = [name.split("/")[:2] for name in ARRAYS if name.endswith(f"/{key}")]
    for name, size in entries:
        options = dict(OTHER_WAYS[key])
        if "activation" in options:
            is_exact = GOLDEN["models"][name]["config"]["mlp"]["activation"] == "gelu"
            options["activation"] = "gelu_tanh" if is_exact else "gelu"
        about, model = loaded(name, **options)
        error = about["sizes"][size]["float32_error"]["pre_logits"]
        with paddle.no_grad():
            found = model.forward_features(make_images(size))
        assert compare(found, key, error, f"{name}/{size}") == 1
        assert len(entries) > 0


NORMED = [key.split("/") for key in ARRAYS if key.endswith("_normed_samples")]


@pytest.mark.parametrize("name", {name: None for name, _, _ in NORMED if GOLDEN["models"][name]["parameters"] <= LARGE})
def test_golden_maps_under_the_last_norm(name):
    about, model = loaded(name, norm_features=True)
    for size, entries in itertools.groupby((entry[1:] for entry in NORMED if entry[0] == name), lambda entry: entry[0]):
        with paddle.no_grad():
            maps = model.feature_maps(make_images(size))
        for _, key in entries:
            number = int(key[len("map") : -len("_normed_samples")])
            found = maps[about["maps_after_blocks"].index(number)]
            error = about["sizes"][size]["float32_error"]["tokens"]
            assert compare(found, f"map{number}_normed", error, f"{name}/{size}") == 1


def test_golden_angles_of_rotary_positions():
    entries = [key.split("/") for key in ARRAYS if key.endswith(("/rope", "/rope_samples"))]
    for name, size, key in entries:
        about = GOLDEN["models"][name]
        kind = {"half": rotary.AXIAL, "interleaved": rotary.GRID}[about["config"]["rope"]["rotation"]]
        angles = rotary.angles(kind, tuple(about["sizes"][size]["grid"]), about["config"]["head_dim"])
        angles = np.tile(angles, 2) if kind == rotary.AXIAL else angles.repeat(2, axis=-1)
        table, expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1), ARRAYS["/".join((name, size, key))]
        table = make_samples(table, expected.size) if key.endswith("samples") else table
        assert np.abs(table - expected).max() < 1e-12
    assert entries


def given_by(expression, state):
    """An array of transformers' as the golden file says it is of timm's, see ``huggingface`` there."""
    parts = []
    for part in expression.split(" | "):
        name, bracket, rows = part.partition("[")
        if name.startswith("zeros("):
            parts.append(np.zeros([int(side) for side in name[len("zeros(") : -1].split(",")], np.float32))
        elif bracket:
            parts.append(state[name][slice(*map(int, rows[:-1].split(":")))])
        else:
            parts.append(state[name])
    return parts


@pytest.mark.parametrize("name", HUGGING_FACE)
def test_weights_under_the_names_of_transformers_are_the_same(name):
    about = GOLDEN["models"][name]
    ours, theirs = make_state(about), {}
    for key, (shape, expression) in about["huggingface"]["keys"].items():
        parts = given_by(expression, ours)
        axis = 1 if "position_embeddings" in key else 0
        theirs[key] = (parts[0] if len(parts) == 1 else np.concatenate(parts, axis=axis)).reshape(shape)
    models = [make_model(about, num_classes=0) for _ in range(2)]
    reports = [load_weights(model, state) for model, state in zip(models, (ours, theirs))]
    assert [report.missing for report in reports] == [[], []]
    assert reports[1].unexpected == []
    for parameter, other in zip(models[0].parameters(), models[1].parameters()):
        assert np.array_equal(parameter.numpy(), other.numpy()), parameter.name
