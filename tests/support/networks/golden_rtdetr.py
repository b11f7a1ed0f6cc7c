"""RT-DETR, RT-DETRv2 and D-FINE of tests/golden/rtdetr.json, transformers' which agree with the authors', with every
dimension from the file, and what they compute."""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import paddle

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.detection.rtdetr.decoder import LocalizationQualityHead
from paddlevit_dist.images.detection.rtdetr.network import RtDetr
from paddlevit_dist.images.models.segmenter import drop_layers
from support.networks.cheap_weights import weights_of_zero
from support.networks.golden import noisy_image
from support.networks.golden_networks import GoldenNetworks, building, find_by_ending, sample

FILE = GoldenNetworks("rtdetr", large=2e7)
GOLDEN, MODELS, stored = FILE.about, FILE.models, FILE.stored
batches, cases = (functools.partial(FILE.list_parts, kind) for kind in ("batches", "cases"))
ALLOWED = 10  # times the float32 error of PyTorch
EXACT = 1e-9  # in float64
BACKBONE = "model.backbone.model."  # begins the names of its weights


def is_fine(model: str) -> bool:
    return MODELS[model]["family"] == "d_fine"


def has_hgnet(model: str) -> bool:
    return MODELS[model]["config"]["backbone_config"]["model_type"] == "hgnet_v2"


def _shapes(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, value in nested.items():
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, list):
            yield key, tuple(value)
        else:
            yield from _shapes(value, key)


def _make_points(model: str) -> list[int]:
    config = MODELS[model]["config"]
    numbers = config["decoder_n_points"]
    return numbers if isinstance(numbers, list) else [numbers] * config["num_feature_levels"]


_draw = functools.cache(FILE.draw)  # networks of one kind have most of them in common


@functools.cache
def make_weights(model: str) -> dict[str, np.ndarray]:
    """The state under the names of transformers 5, float32; its constants are exact in float64."""
    about = MODELS[MODELS[model].get("state_of", model)]
    state = {}
    for key, shape in _shapes(about["state"]):
        value = _draw(key, shape) * find_by_ending(about["gain"], key, 1)
        if key.endswith("lab.scale"):
            value = value + np.float32(1)
        if key == "model.denoising_class_embed.weight":
            value[-1] = 0
        constant = about.get("constants", {}).get(key)
        if isinstance(constant, list):
            value = np.array(constant)
        elif constant is not None:
            points = _make_points(model)
            value = np.repeat(1 / np.array(points, np.float64), points)
        state[key] = value
    return state


def _of_resnet(own: Mapping[str, Any]) -> dict[str, Any]:
    is_bottleneck = own["layer_type"] == "bottleneck"
    return {
        "depths": own["depths"],
        "dims": [width // 4 if is_bottleneck else width for width in own["hidden_sizes"]],
        "stem_dim": own["embedding_size"],
        "is_bottleneck": is_bottleneck,
        "is_vd": True,
        "first_shortcut": not is_bottleneck,
    }


def _of_hgnet(own: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "stem_dims": own["stem_channels"][1:],
        "depths": own["stage_num_blocks"],
        "dims": own["stage_out_channels"],
        "middle_dims": own["stage_mid_channels"],
        "kernel_sizes": own["stage_kernel_size"],
        "light": own["stage_light_block"],
        "layers": own["stage_numb_of_layers"],
        "use_lab": own["use_learnable_affine_block"],
    }


def make_backbone(model: str, dtype: str, **options: Any) -> paddle.nn.Layer:
    """D-FINE's backbone alone, with its part of the weights."""
    built = _of_hgnet(MODELS[model]["config"]["backbone_config"])
    with weights_of_zero():
        backbone = create_model("hgnetv2_b0", num_classes=0, **built, **options).to(dtype=dtype)
    drop_layers(backbone, ("head.last_conv",))
    state = {name: value for name, value in make_weights(model).items() if name.startswith(BACKBONE)}
    report = load_weights(backbone, state, strict=True)
    assert report.unexpected == []
    return backbone


def make_network(model: str, dtype: str) -> RtDetr:
    """The network with these weights, in evaluation mode."""
    config = MODELS[model]["config"]
    own = config["backbone_config"]
    name, options = ("hgnetv2_b0", _of_hgnet(own)) if has_hgnet(model) else ("resnet18d", _of_resnet(own))
    fine = {}
    if is_fine(model):
        fine = {name: float(make_weights(model)[f"model.decoder.{name}"][0]) for name in ("up", "reg_scale")}
        fine.update({"is_fine": True, "bins": config["max_num_bins"]})
    with building(dtype):
        network = RtDetr(
            num_classes=config["num_labels"],
            backbone=name,
            backbone_options=options,
            feature_levels=[index - len(own["stage_names"]) for index in own["out_indices"]],
            frozen_batch_norm=config["freeze_backbone_batch_norms"],
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
            denoising=config["num_denoising"],
            points=_make_points(model),
            is_discrete=config.get("decoder_method") == "discrete",
            **fine,
        )
        if is_fine(model):  # of which the package has one kind alone
            judges = config["top_prob_values"], config["lqe_hidden_dim"], config["lqe_layers"]
            network.decoder.lqe_layers = paddle.nn.LayerList(
                [LocalizationQualityHead(*judges) for _ in network.decoder.layers]
            )
        network.eval()
        report = load_weights(network, make_weights(model), strict=True)
    assert report.unexpected == []
    assert [network.backbone.feature_strides[level] for level in network.feature_levels] == config["feat_strides"]
    return network


def make_images(model: str, dtype: str, batch: int = 0) -> paddle.Tensor:
    """Images, already normalized, of one size."""
    images = [noisy_image(GOLDEN["seed"], *own) for own in MODELS[model]["batches"][batch]["pictures"]]
    return paddle.to_tensor(np.stack(images).astype(dtype))


class Computed(NamedTuple):
    """What a network makes of a batch, without gradients."""

    network: RtDetr
    maps: list[paddle.Tensor]  # of the backbone
    encoded: list[paddle.Tensor]  # of the hybrid encoder
    memory: paddle.Tensor
    starts: paddle.Tensor  # of the queries: boxes before the sigmoid
    outputs: dict[str, paddle.Tensor]


@functools.cache
def shared_network(model: str, dtype: str) -> RtDetr:
    """The same network for all that asks: its weights and its mode must stay."""
    return make_network(model, dtype)


@functools.cache
def computed(model: str, batch: int, dtype: str) -> Computed:
    network, seen = shared_network(model, dtype), {}
    hooks = [
        layer.register_forward_pre_hook(lambda _, inputs, level=level: seen.__setitem__(level, inputs[0]))
        for level, layer in enumerate(network.encoder_input_proj)
    ]
    hooks += [
        network.encoder.register_forward_post_hook(lambda _, inputs, outputs: seen.__setitem__("encoded", outputs)),
        network.decoder.register_forward_pre_hook(lambda _, inputs: seen.__setitem__("decoder", inputs)),
    ]
    with paddle.no_grad():
        outputs = network(make_images(model, dtype, batch))
    for hook in hooks:
        hook.remove()
    maps = [seen[level] for level in range(len(network.feature_levels))]
    _, starts, memory, *_ = seen["decoder"]
    return Computed(network, maps, seen["encoded"], memory, starts, outputs)


def require_maps_and_outputs(model: str, batch: int, dtype: str) -> None:
    """Of the backbone, the encoder, the selection and of every layer of the decoder."""
    about, place = MODELS[model]["batches"][batch], f"{model}/batch{batch}"
    error, steps = about["float32_error"], MODELS[model]["steps"]
    _, maps, encoded, memory, starts, outputs = computed(model, batch, dtype)

    def close(found: np.ndarray, expected: np.ndarray, name: str | float) -> None:
        allowed = EXACT if dtype == "float64" else ALLOWED * (name if isinstance(name, float) else error[name])
        np.testing.assert_allclose(found, expected, rtol=0, atol=allowed)

    for name, values, shapes in (("features", maps, "feature_shapes"), ("encoder", encoded, "encoder_shapes")):
        for level, (one, shape) in enumerate(zip(values, about[shapes], strict=True)):
            assert one.shape == list(shape)
            expected = stored()[f"{place}/{name}{level}"]
            close(sample(one.numpy(), len(expected)), expected, error[name][level])
    assert memory.shape == list(about["memory_shape"])
    if dtype == "float32" and not about["float32_selects_the_same"]:
        return
    close(paddle.nn.functional.sigmoid(starts).numpy(), stored()[f"{place}/initial_boxes"], "initial_boxes")
    close(outputs["logits"].numpy()[:, :: steps["logits"]], stored()[f"{place}/logits"], "logits")
    close(outputs["boxes"].numpy(), stored()[f"{place}/boxes"], "boxes")
    logits, boxes = (outputs[f"layer_{name}"].numpy()[:-1] for name in ("logits", "boxes"))
    if "first_logits" in outputs:
        logits, boxes = (
            np.concatenate([outputs[f"first_{name}"].numpy()[None], found])
            for name, found in (("logits", logits), ("boxes", boxes))
        )
        close(outputs["references"].numpy(), stored()[f"{place}/pre_boxes"], "boxes")
        if dtype == "float64":
            said = GOLDEN["arrays"]["{model}/batch{b}/corners"]
            step = int(re.search(r"every (\d+)th query", said).group(1))
            close(outputs["layer_corners"].numpy()[:, 0, ::step], stored()[f"{place}/corners"], "logits")
    close(logits[:, :, :: steps["aux_logits"]], stored()[f"{place}/aux_logits"], "logits")
    close(boxes[:, :, :: steps["aux_boxes"]], stored()[f"{place}/aux_boxes"], "boxes")


def require_detections(model: str, batch: int) -> None:
    """Boxes in pixels and their scores."""
    place, sizes = f"{model}/batch{batch}", MODELS[model]["batches"][batch]["target_sizes"]
    network, *_, outputs = computed(model, batch, "float64")
    for image, found in enumerate(network.decode(outputs, None, np.array(sizes))):
        scores = stored()[f"{place}/post_scores"][image]
        np.testing.assert_allclose(found.scores, scores, rtol=0, atol=1e-6)
        gaps = np.abs(np.diff(scores)) > 1e-5
        clear = np.concatenate([[True], gaps]) & np.concatenate([gaps, [False]])  # the last has an unknown neighbor
        np.testing.assert_array_equal(found.labels[clear], stored()[f"{place}/post_labels"][image][clear])
        boxes = stored()[f"{place}/post_boxes"][image][clear]
        np.testing.assert_allclose(found.boxes[clear], boxes, rtol=1e-5, atol=1e-3)
