"""Narrow and shallow segmentation networks, and their weights under the names of other projects: renamed the other way
round than our maps, and moved by loops where a layout differs."""

import importlib

import numpy as np
import paddle

from paddlevit_dist.core.tasks.model_factory import create_model, variant_options
from paddlevit_dist.core.tasks.step_types import ExportParts
from paddlevit_dist.extensions.export.command import export
from paddlevit_dist.extensions.export.trained_models import TrainedModel
from support.networks.other_names import arrays, in_torch_layout, replaced

ONE_OF_EACH = [
    "segformer_b0",
    "segformer_mmseg_b0",
    "upernet_swin_tiny",
    "upernet_convnext_tiny",
    "upernet_pvtv2_b0",
    "upernet_vit_base",
    "upernet_deit_small",
    "fcn_resnet50",
    "linear_dinov3_small",
    "linear_dinov2_small",
    "upernet_eva02_small",
]

#: those that are exported for images of any size
ANY_SIZE = [name for name in ONE_OF_EACH if name.startswith(("segformer", "fcn"))]
ANY_SIZE += ["upernet_swin_tiny", "upernet_convnext_tiny", "upernet_pvtv2_b0"]

CLASSES = 5
_REDUCED = {
    "swin": {"embed_dim": 12, "depths": (2, 2, 1, 1), "num_heads": (1, 2, 2, 4), "window_size": 7},
    "convnext": {"depths": (1, 2, 1, 1), "dims": (8, 16, 24, 32)},
    "pvt": {"depths": (1, 2, 1, 1), "embed_dims": (8, 16, 40, 64)},
    "mit": {"depths": (1, 2, 1, 1), "embed_dims": (8, 16, 40, 64)},
    "vit": {"depth": 4, "embed_dim": 24, "num_heads": 2},
    "eva02": {"depth": 4, "embed_dim": 24, "num_heads": 2},
    "deit": {"depth": 4, "embed_dim": 24, "num_heads": 2},
    "resnet50": {"depths": (1, 2, 1, 1), "dims": (8, 8, 16, 16)},
    "resnet101": {"depths": (1, 2, 1, 1), "dims": (8, 8, 16, 16)},
}


def reduced(name):
    """Options of the network ``name``."""
    variant = variant_options(name)
    backbone = variant["backbone"]
    own = _REDUCED[backbone if backbone.startswith("resnet") else backbone.partition("_")[0]]
    options = {"backbone_options": {**variant.get("backbone_options", {}), **own}, "image_size": 64}
    if not name.startswith(("fcn", "linear")):
        options["channels"] = 16
    return options


def far_from_the_start(model, seed):
    """Weights in which everything counts."""
    rng = np.random.default_rng(seed)
    for name, parameter in model.named_parameters():
        value = (0.1 + 0.2 * rng.standard_normal(parameter.shape)).astype("float32")
        parameter.set_value(np.abs(value) + 0.5 if name.endswith("._variance") else value)
    model.eval()
    return model


def small(name, seed, **options):
    paddle.seed(seed)
    return far_from_the_start(create_model(name, num_classes=CLASSES, **{**reduced(name), **options}), seed)


def logits(model, size=(64, 90)):
    images = np.random.default_rng(0).standard_normal((2, 3, *size)).astype("float32")
    with paddle.no_grad():
        return model(paddle.to_tensor(images)).numpy()


def _with_counts(state):
    """PyTorch's batch norms count their batches."""
    counts = [name.replace("running_mean", "num_batches_tracked") for name in state if name.endswith("running_mean")]
    return {**state, **{name: np.int64(7).reshape([]) for name in counts}}


def _earlier(match):
    return f"{int(match[1]) - 1}"


# MiT and SegFormer

_MIT = r"^(backbone\.)?"


def _authors_mit(state):
    return replaced(
        state,
        (_MIT + r"patch_embed\.", lambda m: f"{m[1] or ''}patch_embed1."),
        (_MIT + r"stages\.(\d)\.downsample\.", lambda m: f"{m[1] or ''}patch_embed{int(m[2]) + 1}."),
        (_MIT + r"stages\.(\d)\.blocks\.", lambda m: f"{m[1] or ''}block{int(m[2]) + 1}."),
        (_MIT + r"stages\.(\d)\.norm\.", lambda m: f"{m[1] or ''}norm{int(m[2]) + 1}."),
        (r"\.dwconv\.", ".dwconv.dwconv."),
    )


def of_mits_authors(model):
    """Of MiT, and of networks on it or on PVTv2."""
    return _authors_mit(_with_counts(in_torch_layout(model)))


def of_segformers_authors(model):
    """With the classifier that their head inherits and does not use."""
    unused = {"weight": np.zeros((CLASSES, 128, 1, 1), "float32"), "bias": np.zeros(CLASSES, "float32")}
    return {**of_mits_authors(model), **{f"decode_head.conv_seg.{name}": value for name, value in unused.items()}}


def of_paddlesegs_segformer(model):
    """Linear weights are (in, out), batch norms have Paddle's names."""
    return replaced(
        _authors_mit(arrays(model)),
        (r"^decode_head\.linear_fuse\.conv\.", "linear_fuse._conv."),
        (r"^decode_head\.linear_fuse\.bn\.", "linear_fuse._batch_norm."),
        (r"^decode_head\.", ""),
    )


def of_mmsegmentations_mit(model):
    """Of mmsegmentation's MiT and SegFormer: one projection of queries, keys and values, an MLP of convolutions."""
    state = {}
    for name, value in _with_counts(in_torch_layout(model)).items():
        if ".attn.q." in name:
            of_keys = name.replace(".attn.q.", ".attn.kv.")
            kind = name.rpartition(".")[2]
            joint = np.concatenate([value, in_torch_layout(model)[of_keys]])
            state[name.replace(f".attn.q.{kind}", f".attn.attn.in_proj_{kind}")] = joint
        elif ".mlp.fc" in name and value.ndim == 2:
            state[name] = value[:, :, None, None]
        elif ".attn.kv." not in name:
            state[name] = value
    return replaced(
        state,
        *_in_layers(),
        (r"\.attn\.proj\.", ".attn.attn.out_proj."),
        (r"\.mlp\.fc1\.", ".ffn.layers.0."),
        (r"\.mlp\.dwconv\.", ".ffn.layers.1."),
        (r"\.mlp\.fc2\.", ".ffn.layers.4."),
    )


def of_paddlevits_mit(model):
    """Linear weights are (in, out), the convolutions of the MLP (out, in)."""
    state = {
        name: value.T[:, :, None, None] if ".mlp.fc" in name and value.ndim == 2 else value
        for name, value in arrays(model).items()
    }
    return replaced(
        state,
        *_in_layers(),
        (r"\.mlp\.fc(\d)\.", r".ffn.fc\1."),
        (r"\.mlp\.dwconv\.", ".ffn.pe_conv."),
    )


def _in_layers():
    """mmsegmentation's lists: patches, blocks and norm of a stage."""
    return (
        (_MIT + r"patch_embed\.", lambda m: f"{m[1] or ''}layers.0.0."),
        (_MIT + r"stages\.(\d)\.downsample\.", lambda m: f"{m[1] or ''}layers.{m[2]}.0."),
        (_MIT + r"stages\.(\d)\.norm\.", lambda m: f"{m[1] or ''}layers.{m[2]}.2."),
        (_MIT + r"stages\.(\d)\.blocks\.", lambda m: f"{m[1] or ''}layers.{m[2]}.1."),
        (r"(layers\.\d\.0)\.proj\.", r"\1.projection."),
    )


# UPerNet

_NORMS = (r"^norms\.(\d)\.", r"backbone.norm\1.")
_NECK = (r"^(neck\.(?:lateral_convs|convs)\.\d)\.", r"\1.conv.")


def of_swins_authors(model):
    state = replaced(
        _with_counts(in_torch_layout(model)),
        (r"(?<=backbone\.layers\.)(\d)(?=\.downsample)", _earlier),
        _NORMS,
    )
    state["backbone.layers.0.blocks.0.attn.relative_position_index"] = np.zeros((49, 49), "int64")
    return state


def of_mmsegmentations_swin(model):
    state = of_swins_authors(model)
    for name, value in state.items():
        if ".downsample." in name:
            state[name] = _channel_by_channel(value)
    return replaced(
        state,
        (r"^backbone\.layers\.", "backbone.stages."),
        (r"\.patch_embed\.proj\.", ".patch_embed.projection."),
        (r"\.attn\.", ".attn.w_msa."),
        (r"\.mlp\.fc1\.", ".ffn.layers.0.0."),
        (r"\.mlp\.fc2\.", ".ffn.layers.1."),
    )


def _channel_by_channel(value):
    """Columns from the authors' order, upper left, lower left, upper right and lower right neighbor with all their
    channels each, to ``torch.nn.Unfold``'s: of each channel the neighbors row by row."""
    channels = value.shape[-1] // 4
    result = np.empty_like(value)
    for channel in range(channels):
        for row in range(2):
            for column in range(2):
                ours = (2 * column + row) * channels + channel
                result[..., 4 * channel + 2 * row + column] = value[..., ours]
    return result


def of_convnexts_authors(model):
    return replaced(
        _with_counts(in_torch_layout(model)),
        (r"^backbone\.stem\.", "backbone.downsample_layers.0."),
        (r"^backbone\.stages\.(\d)\.downsample\.", r"backbone.downsample_layers.\1."),
        (r"\.blocks\.", "."),
        (r"\.conv_dw\.", ".dwconv."),
        (r"\.mlp\.fc", ".pwconv"),
        _NORMS,
    )


def of_mmsegmentations_convnext(model):
    return replaced(
        of_convnexts_authors(model), (r"\.dwconv\.", ".depthwise_conv."), (r"\.pwconv(\d)", r".pointwise_conv\1")
    )


def of_mmsegmentations_vit(model):
    return replaced(
        _with_counts(in_torch_layout(model)),
        (r"^backbone\.norm\.", "backbone.ln1."),
        (r"^backbone\.blocks\.", "backbone.layers."),
        (r"\.patch_embed\.proj\.", ".patch_embed.projection."),
        (r"\.norm([12])\.", r".ln\1."),
        (r"\.attn\.qkv\.", ".attn.attn.in_proj_"),
        (r"\.attn\.proj\.", ".attn.attn.out_proj."),
        (r"\.mlp\.fc1\.", ".ffn.layers.0.0."),
        (r"\.mlp\.fc2\.", ".ffn.layers.1."),
        _NECK,
    )


def of_paddlevits_upernet(model):
    heads = {"decode": "decoder", "auxiliary": "aux_decoder"}
    in_rows = r"^(decode|auxiliary)_head\.(.*)\.(conv|bn)\.(?=[^.]+$)"
    return replaced(
        arrays(model),
        (r"^backbone\.layers\.(\d)\.downsample", lambda m: f"encoder.stages.{int(m[1]) - 1}.downsample"),
        (r"^backbone\.layers\.", "encoder.stages."),
        (r"^backbone\.patch_embed\.proj", "encoder.patch_embedding.patch_embed"),
        (r"^backbone\.patch_embed\.norm", "encoder.patch_embedding.norm"),
        (r"^norms\.", "layer_norms."),
        (
            r"^decode_head\.psp_modules\.(\d)\.1\.(conv|bn)\.",
            lambda m: f"decoder.psp_modules.pool_branches.{m[1]}.{1 if m[2] == 'conv' else 2}.",
        ),
        (in_rows, lambda m: f"{heads[m[1]]}.{m[2]}.{0 if m[3] == 'conv' else 1}."),
        (r"^(decode|auxiliary)_head\.", lambda m: f"{heads[m[1]]}."),
    )


def require_same_export(name, folder, kind="paddle"):
    """That an exported file gives the network's logits for images of its size and of others, of one and of two."""
    model, is_any_size = small(name, seed=1), name in ANY_SIZE
    sizes = [(64, 90), *([(75, 131), (33, 50), (64, 64), (40, 200)] if is_any_size else [])]
    given = [np.random.default_rng(3).standard_normal((1 + place % 2, 3, *size)) for place, size in enumerate(sizes)]
    given = [images.astype("float32") for images in (given[0].repeat(2, axis=0), *given)]
    with paddle.no_grad():
        expected = [model(paddle.to_tensor(images)).numpy() for images in given]
        trained = TrainedModel(model, {"input_shape": [None, 3, 64, 90]}, ExportParts(3, {}, is_any_size=True))
        export(trained, str(folder / "out"), kind)
        assert trained.about["input_shape"] == [None, 3, *((None, None) if is_any_size else (64, 90))]
        assert ("takes one size" in trained.about.get("note", "")) != is_any_size
        if kind == "paddle":
            loaded = paddle.jit.load(str(folder / "out"))
            found = [loaded(paddle.to_tensor(images)).numpy() for images in given]
        else:
            session = importlib.import_module("onnxruntime").InferenceSession(str(folder / "out.onnx"))
            found = [session.run(None, {"images": images})[0] for images in given]
    for outputs, same in zip(expected, found, strict=True):
        np.testing.assert_allclose(same, outputs, rtol=0, atol=1e-5 * max(1.0, np.abs(outputs).max()))
