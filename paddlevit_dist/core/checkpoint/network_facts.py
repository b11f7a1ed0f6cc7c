"""Compares the ``config.json`` of transformers, next to weights, with the network that they are loaded into.

Arrays of equal shapes may be of another network: with other heads of attention, points of sampling, or activations.
Each field of a compared family is such a fact, only affects shapes, or is reported by its name.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..runtime.text_files import read_json_facts
from ..tasks.model import Model
from .published import find_sibling_file, is_fetched

CONFIG = "config.json"  # of transformers and timm, in the folder of the weights
# Fields that change no output of loaded weights.
_TRAINING = (
    r"initializer_.*|init_.*std|.*dropout.*|.*drop_path.*|.*layerdrop|matcher_.*|weight_loss_.*|.*_loss_coefficient|"
    r"eos_coefficient|(class|bbox|giou)_cost|focal_loss_.*|use_focal_loss|auxiliary_loss|num_denoising|"
    r"label_noise_ratio|box_noise_scale|freeze_backbone_batch_norms|semantic_loss_ignore_index|problem_type"
)
_FORMAL = (
    r"_.*|architectures|attn_implementation|backbone|chunk_size_feed_forward|disable_custom_kernels|dtype|"
    r"gradient_checkpointing|id2label|is_encoder_decoder|label2id|model_type|num_labels|output_.*|return_dict|"
    r"tie_.*|torch_dtype|torchscript|transformers_version|use_(cache|pretrained_backbone|timm_backbone)"
)
# Fields that shapes and names of the arrays tell, or that are computed for the size of the images.
_SHAPES = (
    r"(.*_)?hidden_sizes?|.*_dim|d_model|.*_channels|.*_layers|depths|num_feature_levels|decoder_n_levels|"
    r"hidden_expansion|depth_mult|layer_scale|num_labels|max_num_bins|reg_max|top_prob_values|embedding_size|"
    r"(?!stage_downsample_strides)stage_.*|stem_channels|out_features|out_indices|max_position_embeddings|layer_type|"
    r"window_size|use_learnable_affine_block|anchor_image_size|eval_size|in_chans|features_only|image_size|patch_sizes?|"
    r"num_encoder_blocks|num_stages|path_norm|sr_ratios|layer_scale_init_value|use_absolute_embeddings|mlp_ratios?|"
    r"qkv_bias|intermediate_size|pooler_.*|encoder_stride|num_channels"
)
# Values that the arrays of D-FINE's weights contain, too, which are compared.
_STORED = ("reg_scale", "up")
_is_irrelevant = re.compile(f"{_TRAINING}|{_FORMAL}|{_SHAPES}|{'|'.join(_STORED)}", re.DOTALL).fullmatch
_NOTHING: tuple[Any, ...] = (None, False, "", [], {})


def find_config(source: str, file: Path, may_download: bool, name: str = CONFIG) -> Path | None:
    """Return the file ``name`` of the weights called ``source``, whose local copy is ``file``; None without one."""
    found = find_sibling_file(source, name, may_download)[0] if is_fetched(source) else file.with_name(name)
    return found if found is not None and found.is_file() else None


def list_network_differences(model: Model, source: str, file: Path, state: Mapping[str, Any]) -> list[str]:
    """List how the network of the weights ``state``, under its own names, differs from the model beyond shapes.

    Empty if there are no differences, or if no file describes this network.
    """
    facts = model.network_facts()
    stored = []
    for name, value in state.items():
        expected = facts.get(last) if (last := name.rpartition(".")[2]) in _STORED else None
        if expected is not None and value.size and not _is_same(float(value.reshape(-1)[0]), expected):
            stored.append(f"{name} is {float(value.reshape(-1)[0]):g} there, {expected:g} here")
    config = find_config(source, file, may_download=False) if facts else None
    content = {} if config is None else read_json_facts(config)
    if content.get("model_type") not in facts.get("model_type", ()):
        return stored
    return [*stored, *_compare(content, facts)]


def _compare(content: Mapping[str, Any], facts: Mapping[str, Any], prefix: str = "") -> list[str]:
    differences = []
    for name, value in content.items():
        if name in facts and name not in ("model_type", *_STORED):
            expected = facts[name]
            if isinstance(expected, Mapping):
                differences += _compare(value, expected, f"{prefix}{name}.") if isinstance(value, Mapping) else []
            elif value is not None and not _is_same(value, expected):
                is_one_of = isinstance(expected, frozenset)
                here = " or ".join(map(str, sorted(expected))) if is_one_of else json.dumps(expected)
                differences.append(f"{CONFIG}: {prefix}{name} is {json.dumps(value)} there, {here} here")
        elif not _is_irrelevant(name) and value not in _NOTHING:
            differences.append(f"{CONFIG}: {prefix}{name} is {json.dumps(value)[:80]} there, which is not known here")
    return differences


def _is_same(value: object, expected: object) -> bool:
    """Return whether values are equal; one number may stand for a list of equal ones, and a set lists equal values."""
    if isinstance(expected, frozenset):
        return any(_is_same(value, choice) for choice in expected)
    if isinstance(expected, (list, tuple)):
        values = value if isinstance(value, list) else [value] * len(expected)
        return len(values) == len(expected) and all(map(_is_same, values, expected))
    if isinstance(expected, float) and isinstance(value, (int, float)):
        return abs(value - expected) <= 1e-6 * abs(expected)
    return value == expected
