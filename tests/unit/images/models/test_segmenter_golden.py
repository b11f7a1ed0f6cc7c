"""Segmentation networks under the names of transformers' checkpoints: its features, logits, losses and gradients."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from support.networks.cheap_weights import learn_only, weights_of_zero
from support.networks.golden import arrays, description, recipe, weights

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.models.segformer import SegFormer
from paddlevit_dist.images.models.upernet import UPerNet

GOLDEN, ARRAYS = description("segmentation"), arrays("segmentation")
SIZES = [(name, size) for name, about in GOLDEN["models"].items() for size in about["sizes"]]


def is_whole(size):
    """Whether the stages halve the sides without a rest."""
    return not any(int(side) % 32 for side in size.split("x"))


LARGE = [(*case, "float32") for case in SIZES if case[0].startswith("upernet")]  # of the night
CASES = [
    *((*case, "float32") for case in SIZES if case[0].startswith("segformer")),
    # Of other sizes Paddle's resize has ratios in float32.
    *((name, size, "float64") for name, size in SIZES if name.startswith("segformer") and is_whole(size)),
]
VALUES, LOSSES = 1e-4, 1e-5  # torch's own float32 run is off by up to 7e-6 and 3e-7
# Of gradient norms, relative. In float32 a ReLU whose input is near 0 is there or not, by the order of a sum.
GRADIENTS = {"segformer": {"float32": 1e-3, "float64": 1e-9}, "upernet": {"float32": 1e-2}}
IGNORED = 255
OURS = {"hidden_sizes": "dims"}  # ConvNeXt's widths


def is_segformer(name):
    return name.startswith("segformer")


def make_model(name):
    """The network of the golden file, every rate 0. transformers adds 1e-5 in all norms of SegFormer, whatever its
    configuration says."""
    about = GOLDEN["models"][name]
    config, common = about["config"], {"num_classes": about["classes"], "dropout": 0.0}
    if not is_segformer(name):
        options = {OURS.get(key, key): value for key, value in config["backbone"].items()}
        options |= {"any_size": True} if "swin" in name else {}
        heads = {"channels": config["hidden_size"], "auxiliary_channels": config["auxiliary_channels"]}
        model = create_model(f"{name}_tiny", backbone_options=options, **heads, **common)
        assert model.auxiliary_weight == config["auxiliary_loss_weight"]
    else:
        sizes = {"embed_dims": config["hidden_sizes"], "depths": config["depths"]}
        options = {**sizes, "num_heads": config["num_attention_heads"], "epsilon": 1e-5}
        channels = config["decoder_hidden_size"]
        model = create_model("segformer_b0", channels=channels, backbone_options=options, **common)
    report = load_weights(model, weights(GOLDEN["seed"], about["state"]), strict=True)
    assert report.origin.startswith("Hugging Face") and not report.unexpected
    numbers = sum(int(p.size) for p in model.parameters() if not p.stop_gradient)
    assert numbers == about["parameters"]
    return model


def make_maps(model, name, images):
    return model.backbone.feature_maps(images) if is_segformer(name) else model.maps(images)


def sampled(value, like):
    """The samples of the JSON's index rule."""
    return np.ravel(value)[np.arange(like.size) * 2654435761 % value.size]


def our_name(name, theirs, shape):
    maps = [SegFormer.key_maps["Hugging Face"]]
    maps += [UPerNet.key_maps[f"Hugging Face ({backbone})"] for backbone in ("Swin", "ConvNeXt")]
    to_ours = maps[0] if is_segformer(name) else maps[1 if "swin" in name else 2]
    return next(iter(to_ours({theirs: np.zeros(shape)})))


def losses(outputs, labels):
    """Main and auxiliary loss: the mean over labeled pixels of the cross-entropy at the image's size."""
    found = []
    for logits in outputs if isinstance(outputs, tuple) else (outputs,):
        logits = F.interpolate(logits, size=labels.shape[1:], mode="bilinear", align_corners=False)
        found.append(F.cross_entropy(logits, labels, axis=1, ignore_index=IGNORED))
    return found


def gradient_names(name, expected):
    """Ours of the parameters whose gradients the file has."""
    shapes = GOLDEN["models"][name]["state"]
    norms = [key for mode in ("evaluation_mode", "training_mode") for key in expected[mode]["gradient_norms"]]
    return {our_name(name, theirs, shapes[theirs]) for theirs in norms}


def check_gradients(model, name, expected):
    parameters = dict(model.named_parameters())
    dtype = "float64" if next(iter(parameters.values())).dtype == paddle.float64 else "float32"
    tolerance = GRADIENTS[name.partition("_")[0]][dtype]
    for theirs, norm in expected["gradient_norms"].items():
        gradient = parameters[our_name(name, theirs, GOLDEN["models"][name]["state"][theirs])].grad.numpy()
        assert np.linalg.norm(gradient.astype(np.float64)) == pytest.approx(norm, rel=tolerance), theirs
    model.clear_gradients()


@weights_of_zero()
@pytest.mark.parametrize("name, size, dtype", CASES)
def test_golden_segmentation_is_reproduced(name, size, dtype):
    require_features_losses_and_gradients(name, size, dtype)


def require_features_losses_and_gradients(name, size, dtype):
    expected, key = GOLDEN["models"][name]["sizes"][size], f"{name}/{size}/"
    height, width = map(int, size.split("x"))
    number = len(ARRAYS[key + "labels"])
    images = recipe().golden_image(GOLDEN["seed"], number, max(height, width))[:, :, :height, :width]
    images = paddle.to_tensor(np.ascontiguousarray(images).astype(dtype))
    labels = paddle.to_tensor(ARRAYS[key + "labels"].astype("int64"))
    model = make_model(name).to(dtype=dtype)
    learn_only(model, gradient_names(name, expected))

    model.eval()
    with paddle.no_grad():
        maps = [found.numpy() for found in make_maps(model, name, images)]
    for number, found in enumerate(maps):
        samples = ARRAYS[f"{key}feature{number}"]
        assert list(found.shape) == expected[f"feature{number}"]["shape"]
        assert np.abs(sampled(found, samples) - samples).max() <= VALUES

    outputs = (model(images),)
    if model.auxiliary_weight:
        outputs += (model.auxiliary_head(model.maps(images)[2]),)
        samples = ARRAYS[key + "auxiliary_logits_samples"]
        assert np.abs(sampled(outputs[1].numpy(), samples) - samples).max() <= VALUES
    large = F.interpolate(outputs[0], size=[height, width], mode="bilinear", align_corners=False)
    logits = (outputs[0] if is_segformer(name) else large).numpy()
    samples = ARRAYS[key + "logits_samples"]
    assert (
        list(logits.shape) == expected["logits"]["shape"]
        and np.abs(logits.mean() - expected["logits"]["mean"]) < VALUES
    )
    assert np.abs(sampled(logits, samples) - samples).max() <= VALUES
    if key + "logits" in ARRAYS:
        np.testing.assert_allclose(logits, ARRAYS[key + "logits"], rtol=0, atol=VALUES)
    differing = (large.argmax(axis=1).numpy() != ARRAYS[key + "prediction"]).sum()
    assert differing <= expected["prediction"]["pixels_with_margin_below_1e-3"]
    check_losses(model, name, outputs, labels, expected["evaluation_mode"])

    model.train()
    wanted = expected["training_mode"]
    norm = our_name(name, wanted["batch_norm"] + ".weight", [1]).rpartition(".")[0]
    statistics = {kind: model.state_dict()[f"{norm}.{kind}"] for kind in ("_mean", "_variance")}
    outputs = model(images)
    check_losses(model, name, outputs, labels, wanted)
    for kind, theirs in (("_mean", "mean"), ("_variance", "var")):
        samples = ARRAYS[f"{key}training_running_{theirs}"]
        np.testing.assert_allclose(sampled(statistics[kind].numpy(), samples), samples, rtol=0, atol=LOSSES)


def check_losses(model, name, outputs, labels, expected):
    main, *auxiliary = losses(outputs, labels)
    total = main + sum(model.auxiliary_weight * loss for loss in auxiliary)
    total.backward()
    assert main.item() == pytest.approx(expected["main"], abs=LOSSES)
    assert [loss.item() for loss in auxiliary] == pytest.approx(
        [expected["auxiliary"]] if "auxiliary" in expected else [], abs=LOSSES
    )
    assert total.item() == pytest.approx(expected["loss"], abs=LOSSES)
    check_gradients(model, name, expected)
