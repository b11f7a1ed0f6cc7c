"""Small models, and their weights under other projects' names: renamed by the inverse of our maps."""

import re

import numpy as np
import paddle

from paddlevit_dist.core.tasks.model_factory import create_model

REDUCED = {
    "vit": {"depth": 2, "embed_dim": 48, "num_heads": 4, "patch_size": 8, "image_size": 32},
    "deit_tiny_distilled_patch16_224": {"depth": 2, "embed_dim": 24, "image_size": 64},
    "swin_tiny_patch4_window7_224": {"depths": (2, 2, 1, 1), "embed_dim": 24, "image_size": 96},
    "cait_xxs24_224": {"depth": 2, "embed_dim": 32, "image_size": 64},
    "pvt_v2_b2_li": {"depths": (1, 2, 1, 1), "embed_dims": (8, 16, 40, 64), "image_size": 64},
    "mixer_s16_224": {"depth": 2, "embed_dim": 32, "image_size": 64},
    "convnext_tiny": {"depths": (1, 2, 1, 1), "dims": (8, 16, 24, 32), "image_size": 64},
    "resnet50": {"depths": (1, 2, 1, 1), "dims": (8, 16, 24, 32), "image_size": 64},
}


def small(name, seed, **options):
    paddle.seed(seed)
    model = create_model(name, num_classes=options.pop("num_classes", 5), **{**REDUCED[name], **options})
    rng = np.random.default_rng(seed)
    for key, parameter in model.named_parameters():
        value = (0.1 + 0.2 * rng.standard_normal(parameter.shape)).astype("float32")
        parameter.set_value(np.abs(value) if key.endswith("._variance") else value)
    model.eval()
    return model


def logits(model):
    pixels = np.random.default_rng(0).standard_normal((2, 3, *model.image_size)).astype("float32")
    with paddle.no_grad():
        return model(paddle.to_tensor(pixels)).numpy()


def arrays(model):
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}


def in_torch_layout(model):
    linear = {f"{name}.weight" for name, layer in model.named_sublayers() if isinstance(layer, paddle.nn.Linear)}
    state = {name: value.T if name in linear else value for name, value in arrays(model).items()}
    return replaced(state, (r"\._mean$", ".running_mean"), (r"\._variance$", ".running_var"))


def replaced(state, *pairs):
    result = {}
    for name, value in state.items():
        for pattern, replacement in pairs:
            name = re.sub(pattern, replacement, name)
        result[name] = value
    return result


def of_swins_authors(model):
    state = replaced(
        in_torch_layout(model),
        (r"^layers\.(\d)\.downsample", lambda m: f"layers.{int(m[1]) - 1}.downsample"),
        (r"^head\.fc\.", "head."),
    )
    state["layers.0.blocks.1.attn_mask"] = np.zeros((4, 49, 49))
    state["layers.0.blocks.0.attn.relative_position_index"] = np.zeros((49, 49), "int64")
    return state


def of_paddlevits_swin(model):
    state = replaced(
        arrays(model),
        (r"^layers\.(\d)\.downsample", lambda m: f"stages.{int(m[1]) - 1}.downsample"),
        (r"^layers\.", "stages."),
        (r"^patch_embed\.proj", "patch_embedding.patch_embed"),
        (r"^patch_embed\.norm", "patch_embedding.norm"),
        (r"^head\.fc\.", "fc."),
    )
    state["stages.0.blocks.1.attn_mask"] = np.zeros((4, 49, 49), "float32")
    return state


def of_pvts_authors(model):
    return replaced(
        in_torch_layout(model),
        (r"^patch_embed\.", "patch_embed1."),
        (r"^stages\.(\d)\.downsample\.", lambda m: f"patch_embed{int(m[1]) + 1}."),
        (r"^stages\.(\d)\.blocks\.", lambda m: f"block{int(m[1]) + 1}."),
        (r"^stages\.(\d)\.norm\.", lambda m: f"norm{int(m[1]) + 1}."),
        (r"\.dwconv\.", ".dwconv.dwconv."),
    )


def of_convnexts_authors(model):
    return replaced(
        in_torch_layout(model),
        (r"^stem\.", "downsample_layers.0."),
        (r"^stages\.(\d)\.downsample\.", r"downsample_layers.\1."),
        (r"\.blocks\.", "."),
        (r"\.conv_dw\.", ".dwconv."),
        (r"\.mlp\.fc", ".pwconv"),
        (r"^head\.norm\.", "norm."),
        (r"^head\.fc\.", "head."),
    )


def of_torchvisions_resnet(model):
    state = in_torch_layout(model)
    counts = [name.replace("running_mean", "num_batches_tracked") for name in state if name.endswith("running_mean")]
    return {**state, **{name: np.int64(7).reshape([]) for name in counts}}


def of_transformers_resnet(model):
    """Of ResNetForImageClassification: counted from 0, each convolution with its norm, the classifier in a list."""
    kinds = {"conv": "convolution", "bn": "normalization"}
    return replaced(
        of_torchvisions_resnet(model),
        (r"^(conv|bn)1\.", lambda m: f"embedder.embedder.{kinds[m[1]]}."),
        (r"^layer(\d)\.", lambda m: f"encoder.stages.{int(m[1]) - 1}.layers."),
        (r"\.(conv|bn)(\d)\.(?=\w+$)", lambda m: f".layer.{int(m[2]) - 1}.{kinds[m[1]]}."),
        (r"\.downsample\.0\.", ".shortcut.convolution."),
        (r"\.downsample\.1\.", ".shortcut.normalization."),
        (r"^(embedder|encoder)\.", r"resnet.\1."),
        (r"^fc\.", "classifier.1."),
    )


def in_jax_layout(state):
    result = {}
    for name, value in state.items():
        if name.endswith("/weight"):
            kind = "scale" if value.ndim == 1 else "kernel"
            name = name[: -len("weight")] + kind
            value = value.transpose(2, 3, 1, 0) if value.ndim == 4 else value
        result[name] = value
    return result


def of_googles_vit(model, attention="MultiHeadDotProductAttention_1", second_norm="LayerNorm_2", mlp="MlpBlock_3"):
    heads, width = 4, 48
    state = {}
    for name, value in arrays(model).items():
        found = re.fullmatch(r"blocks\.(\d)\.attn\.(qkv|proj)\.(weight|bias)", name)
        if found is None:
            state[name] = value
        elif found[2] == "qkv":
            for part, piece in zip(("query", "key", "value"), np.split(value, 3, axis=-1)):
                shape = (width, heads, width // heads) if found[3] == "weight" else (heads, width // heads)
                state[f"blocks.{found[1]}.{attention}.{part}.{found[3]}"] = piece.reshape(shape)
        else:
            shape = (heads, width // heads, width) if found[3] == "weight" else (width,)
            state[f"blocks.{found[1]}.{attention}.out.{found[3]}"] = value.reshape(shape)
    state = replaced(
        state,
        (r"^cls_token$", "cls"),
        (r"^pos_embed$", "Transformer.posembed_input.pos_embedding"),
        (r"^patch_embed\.proj\.", "embedding."),
        (r"^norm\.", "Transformer.encoder_norm."),
        (r"^blocks\.(\d)\.norm1\.", r"blocks.\1.LayerNorm_0."),
        (r"^blocks\.(\d)\.norm2\.", rf"blocks.\1.{second_norm}."),
        (r"^blocks\.(\d)\.mlp\.fc([12])\.", lambda m: f"blocks.{m[1]}.{mlp}.Dense_{int(m[2]) - 1}."),
        (r"^blocks\.", "Transformer.encoderblock_"),
        (r"\.", "/"),
    )
    return in_jax_layout(state)


def of_big_visions_vit(model):
    state = of_googles_vit(model, "MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")
    return {f"params/{name}": value for name, value in state.items()}


def of_googles_mixer(model):
    state = replaced(
        arrays(model),
        (r"^stem\.proj\.", "stem."),
        (r"^norm\.", "pre_head_layer_norm."),
        (r"\.norm([12])\.", lambda m: f".LayerNorm_{int(m[1]) - 1}."),
        (r"\.mlp_tokens\.fc([12])\.", lambda m: f".token_mixing.Dense_{int(m[1]) - 1}."),
        (r"\.mlp_channels\.fc([12])\.", lambda m: f".channel_mixing.Dense_{int(m[1]) - 1}."),
        (r"^blocks\.", "MixerBlock_"),
        (r"\.", "/"),
    )
    return in_jax_layout(state)


def with_paddlevit_names(state):
    """PaddleViT's names, written down from its model the other way round than our map."""
    renamed = {}
    for name, value in state.items():
        for ours, theirs in (
            ("pos_embed", "position_embedding"),
            ("patch_embed.proj", "patch_embedding.patch_embedding"),
            ("attn.proj", "attn.out"),
            ("norm1", "attn_norm"),
            ("norm2", "mlp_norm"),
            ("blocks", "encoder.layers"),
            ("head", "classifier"),
        ):
            name = name.replace(ours, theirs)
        renamed[f"encoder.encoder_{name}" if name.startswith("norm.") else name] = value
    return renamed
