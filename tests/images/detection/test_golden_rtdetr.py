"""RT-DETR, RT-DETRv2 and D-FINE of transformers, which agree with the authors', reproduced from their weights."""

import functools

import numpy as np
import paddle
import pytest
from support.golden import arrays, description, noisy_image, recipe

from paddlevit_dist.checkpoint.load import load_weights
from paddlevit_dist.images.detection.rtdetr.network import RtDetr

GOLDEN = description("rtdetr")
MODELS = GOLDEN["models"]
ALLOWED = 10  # times the float32 error of PyTorch
EXACT = 1e-9  # in float64
EACH_BATCH = [
    pytest.param(model, batch, marks=pytest.mark.long if about["parameters"] > 2e7 else ())
    for model, about in MODELS.items()
    for batch in range(len(about["batches"]))
]


@functools.cache
def stored():
    return arrays("rtdetr")


def _shapes(nested, prefix=""):
    for name, value in nested.items():
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, list):
            yield key, tuple(value)
        else:
            yield from _shapes(value, key)


def _config(model):
    return MODELS[model]["config"]


def points_of(model):
    config = _config(model)
    numbers = config["decoder_n_points"]
    return numbers if isinstance(numbers, list) else [numbers] * config["num_feature_levels"]


@functools.cache
def weights_of(model):
    """The state under the names of transformers 5, float32; its constants are exact in float64."""
    about, make = MODELS[MODELS[model].get("state_of", model)], recipe().golden_weight
    state = {}
    for key, shape in _shapes(about["state"]):
        gain = next((gain for ending, gain in about["gain"].items() if key.endswith(ending)), 1)
        value = make(GOLDEN["seed"], key, shape) * np.float32(gain)
        if key.endswith("lab.scale"):
            value = value + np.float32(1)
        if key == "model.denoising_class_embed.weight":
            value[-1] = 0
        constant = about.get("constants", {}).get(key)
        if isinstance(constant, list):
            value = np.array(constant)
        elif constant is not None:
            points = points_of(model)
            value = np.repeat(1 / np.array(points, np.float64), points)
        state[key] = value
    return state


def _backbone(config):
    own = config["backbone_config"]
    levels = [index - len(own["stage_names"]) for index in own["out_indices"]]
    options = {"feature_levels": levels, "frozen_batch_norm": config["freeze_backbone_batch_norms"]}
    if own["model_type"] == "rt_detr_resnet":
        is_bottleneck = own["layer_type"] == "bottleneck"
        dims = [width // 4 if is_bottleneck else width for width in own["hidden_sizes"]]
        built = {"depths": own["depths"], "dims": dims, "is_bottleneck": is_bottleneck, "is_vd": True}
        return {"backbone": "resnet18d", "backbone_options": {**built, "first_shortcut": not is_bottleneck}, **options}
    built = {
        "stem_dims": own["stem_channels"][1:],
        "depths": own["stage_num_blocks"],
        "dims": own["stage_out_channels"],
        "middle_dims": own["stage_mid_channels"],
        "kernel_sizes": own["stage_kernel_size"],
        "light": own["stage_light_block"],
        "layers": own["stage_numb_of_layers"][0],
        "use_lab": own["use_learnable_affine_block"],
    }
    return {"backbone": "hgnetv2_b0", "backbone_options": built, **options}


def network_of(model, dtype):
    """The network with these weights, in evaluation mode."""
    config, is_fine = _config(model), MODELS[model]["family"] == "d_fine"
    more = {"is_fine": True, "bins": config["max_num_bins"], "up": config["up"]} if is_fine else {}
    more.update({"reg_scale": config["reg_scale"]} if is_fine else {})
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        network = RtDetr(
            num_classes=config["num_labels"],
            encoder_dim=config["encoder_hidden_dim"],
            encoder_layers=config["encoder_layers"],
            encoder_heads=config["encoder_attention_heads"],
            encoder_feedforward=config["encoder_ffn_dim"],
            blocks=round(3 * config.get("depth_mult", 1)),
            expansion=config["hidden_expansion"],
            embed_dim=config["d_model"],
            num_heads=config["decoder_attention_heads"],
            feedforward=config["decoder_ffn_dim"],
            decoder_layers=config["decoder_layers"],
            num_queries=config["num_queries"],
            points=points_of(model),
            is_discrete=config.get("decoder_method") == "discrete",
            **_backbone(config),
            **more,
        )
        network.eval()
        load_weights(network, weights_of(model), strict=True)
    finally:
        paddle.set_default_dtype(before)
    return network


def batch_of(model, dtype, batch=0):
    """Images, already normalised, of one size."""
    images = [noisy_image(GOLDEN["seed"], *own) for own in MODELS[model]["batches"][batch]["pictures"]]
    return paddle.to_tensor(np.stack(images).astype(dtype))


def samples_of(tensor, number):
    values = tensor.numpy()
    return values.ravel()[np.arange(number) * (values.size - 1) // (number - 1)]


@functools.cache
def computed(model, batch, dtype):
    network, images = network_of(model, dtype), batch_of(model, dtype, batch)
    with paddle.no_grad():
        maps = network.backbone.features(images)
        maps = [maps[level] for level in network.feature_levels]
        encoded = network.encoder([project(one) for one, project in zip(maps, network.encoder_input_proj)])
        memory, grids = network.memory(images)
        return network, maps, encoded, memory, network.select(memory, grids), network(images)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("model", "batch"), EACH_BATCH)
def test_golden_maps_selection_and_outputs_of_every_layer(model, batch, dtype):
    about, place = MODELS[model]["batches"][batch], f"{model}/batch{batch}"
    error, steps = about["float32_error"], MODELS[model]["steps"]
    _, maps, encoded, memory, (starts, _, _, _), outputs = computed(model, batch, dtype)

    def close(found, expected, name):
        allowed = EXACT if dtype == "float64" else ALLOWED * (name if isinstance(name, float) else error[name])
        np.testing.assert_allclose(found, expected, rtol=0, atol=allowed)

    for name, values, shapes in (("features", maps, "feature_shapes"), ("encoder", encoded, "encoder_shapes")):
        for level, (one, shape) in enumerate(zip(values, about[shapes], strict=True)):
            assert one.shape == list(shape)
            expected = stored()[f"{place}/{name}{level}"]
            close(samples_of(one, len(expected)), expected, error[name][level])
    assert memory.shape == list(about["memory_shape"])
    if dtype == "float32" and not about["float32_selects_the_same"]:
        return
    close(starts.sigmoid().numpy(), stored()[f"{place}/initial_boxes"], "initial_boxes")
    close(outputs["logits"].numpy()[:, :: steps["logits"]], stored()[f"{place}/logits"], "logits")
    close(outputs["boxes"].numpy(), stored()[f"{place}/boxes"], "boxes")
    logits, boxes = (outputs[f"layer_{name}"].numpy()[:-1] for name in ("logits", "boxes"))
    if "first_logits" in outputs:
        logits, boxes = (
            np.concatenate([outputs[f"first_{name}"].numpy()[None], found])
            for name, found in (("logits", logits), ("boxes", boxes))
        )
        close(outputs["references"].numpy(), stored()[f"{place}/pre_boxes"], "boxes")
        corners, expected = outputs["layer_corners"].numpy()[:, 0], stored()[f"{place}/corners"]
        if dtype == "float64":
            close(corners[:, :: -(-corners.shape[1] // expected.shape[1])], expected, "logits")
    close(logits[:, :, :: steps["aux_logits"]], stored()[f"{place}/aux_logits"], "logits")
    close(boxes[:, :, :: steps["aux_boxes"]], stored()[f"{place}/aux_boxes"], "boxes")


@pytest.mark.parametrize(("model", "batch"), EACH_BATCH)
def test_golden_boxes_in_pixels_and_their_scores(model, batch):
    place, sizes = f"{model}/batch{batch}", MODELS[model]["batches"][batch]["target_sizes"]
    network, *_, outputs = computed(model, batch, "float64")
    for image, found in enumerate(network.decode(outputs, None, np.array(sizes))):
        scores = stored()[f"{place}/post_scores"][image]
        np.testing.assert_allclose(found.scores, scores, rtol=0, atol=1e-6)
        gaps = np.abs(np.diff(scores)) > 1e-5
        clear = np.concatenate([[True], gaps]) & np.concatenate([gaps, [False]])  # the last has an unknown neighbour
        np.testing.assert_array_equal(found.labels[clear], stored()[f"{place}/post_labels"][image][clear])
        boxes = stored()[f"{place}/post_boxes"][image][clear]
        np.testing.assert_allclose(found.boxes[clear], boxes, rtol=1e-5, atol=1e-3)
