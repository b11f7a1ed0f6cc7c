"""Make rfdetr.json and rfdetr.npz: outputs, losses and gradients of RF-DETR's own network, computed by torch.

Run with a clone of github.com/roboflow/rf-detr at the commit below (version 1.4.1 of the package rfdetr), in an
environment with torch, torchvision, transformers 4, peft and scipy:

    PYTHONPATH=rf-detr python tests/golden/make_rfdetr.py
"""

import importlib.metadata
import importlib.util
import json
import sys
import types
from argparse import Namespace
from pathlib import Path

import numpy as np
import recipe
import torch

package = types.ModuleType("rfdetr")  # without what its commands import
package.__path__ = importlib.util.find_spec("rfdetr").submodule_search_locations
sys.modules["rfdetr"] = package

from rfdetr.models import build_criterion_and_postprocessors, build_model  # noqa: E402
from rfdetr.models.backbone import dinov2  # noqa: E402
from rfdetr.util.misc import NestedTensor  # noqa: E402

COMMIT = "35ac6ab64634e188bbb0fa3fc5135132f0df45fc"
SEED, CLASSES, QUERIES, GROUPS, DIM = 0, 7, 12, 3, 32
OBJECTS = [3, 0, 2]  # of each image
# Depths and windows as of rf-detr-nano, and as of rf-detr-base, at sizes where positions are (not) resampled.
KINDS = {
    "nano": {"out_feature_indexes": [1, 2, 4], "patch_size": 16, "num_windows": 2, "positions": 6, "side": 96},
    "base": {"out_feature_indexes": [1, 3], "patch_size": 14, "num_windows": 4, "positions": 5, "side": 112},
}
WIDTH, DEPTH, HEADS = 48, 4, 3
GAIN = {"sampling_offsets.bias": 5.0, "refpoint_embed.weight": 0.3}
GRADIENTS = (
    "backbone.0.encoder.encoder.encoder.layer.0.mlp.fc1.weight",
    "backbone.0.projector.stages.0.0.cv1.conv.weight",
    "transformer.decoder.layers.0.linear1.weight",
    "refpoint_embed.weight",
    "transformer.enc_out_bbox_embed.2.layers.0.weight",
    "class_embed.bias",
)


def settings(kind):
    """The arguments of build_model: those of TrainConfig and of rfdetr/main.py, and small dimensions."""
    chosen = KINDS[kind]
    return Namespace(
        num_classes=CLASSES - 1, device="cpu", encoder="dinov2_windowed_small", vit_encoder_num_layers=12,
        pretrained_encoder=None, window_block_indexes=None, drop_path=0.0, hidden_dim=DIM,
        out_feature_indexes=chosen["out_feature_indexes"], projector_scale=["P4"], use_cls_token=True,
        position_embedding="sine", freeze_encoder=False, layer_norm=True, rms_norm=False, backbone_lora=False,
        force_no_pretrain=False, gradient_checkpointing=False, pretrain_weights="none", resolution=chosen["side"],
        patch_size=chosen["patch_size"], num_windows=chosen["num_windows"],
        positional_encoding_size=chosen["positions"], encoder_only=False, backbone_only=False, sa_nheads=4,
        ca_nheads=8, num_queries=QUERIES, dropout=0.0, dim_feedforward=64, dec_layers=2, group_detr=GROUPS,
        two_stage=True, dec_n_points=2, lite_refpoint_refine=True, decoder_norm="LN", bbox_reparam=True,
        segmentation_head=False, aux_loss=True, cls_loss_coef=1.0, bbox_loss_coef=5, giou_loss_coef=2,
        set_cost_class=2, set_cost_bbox=5, set_cost_giou=2, focal_alpha=0.25, use_varifocal_loss=False,
        use_position_supervised_loss=False, ia_bce_loss=True, num_select=QUERIES,
    )  # fmt: skip


def narrow(size, use_registers):
    found = plain(size, use_registers)
    return {**found, "hidden_size": WIDTH, "num_hidden_layers": DEPTH, "num_attention_heads": HEADS}


plain, dinov2.get_config, dinov2.size_to_width = dinov2.get_config, narrow, {"small": WIDTH}


def load(network):
    state = {}
    for key, value in network.state_dict().items():
        gain = next((gain for ending, gain in GAIN.items() if key.endswith(ending)), 1.0)
        weight = recipe.golden_weight(SEED, key, tuple(value.shape)) * np.float32(gain)
        state[key] = torch.from_numpy(np.asarray(weight + np.float32(key.endswith("lambda1"))))
    network.load_state_dict(state)
    return {key: list(value.shape) for key, value in state.items()}


def targets():
    random = np.random.default_rng(SEED)
    made = []
    for number in OBJECTS:
        sides = random.uniform(0.1, 0.4, (number, 2))
        boxes = np.concatenate([random.uniform(0.25, 0.75, (number, 2)), sides], 1)
        made.append({"labels": torch.from_numpy(random.integers(CLASSES, size=number)), "boxes": torch.from_numpy(boxes)})
    return made


def main():
    about, arrays = {}, {}
    for kind, chosen in KINDS.items():
        torch.set_default_dtype(torch.float32)
        network, (criterion, _) = build_model(settings(kind)), build_criterion_and_postprocessors(settings(kind))
        shapes = load(network)
        torch.set_default_dtype(torch.float64)
        network.double()
        images = torch.from_numpy(recipe.golden_image(SEED, len(OBJECTS), chosen["side"])).double()
        batch = NestedTensor(images, torch.zeros(images[:, 0].shape, dtype=torch.bool))
        network.eval()
        with torch.no_grad():
            outputs = network(batch)
        arrays[f"{kind}/logits"], arrays[f"{kind}/boxes"] = (outputs[f"pred_{name}"].numpy() for name in ("logits", "boxes"))
        network.train()
        made = targets()
        found = criterion(network(batch), made)
        losses = {name: found[name] * weight for name, weight in WEIGHTS.items()}
        total = sum(losses.values())
        parameters = dict(network.named_parameters())
        for name, gradient in zip(GRADIENTS, torch.autograd.grad(total, [parameters[name] for name in GRADIENTS])):
            arrays[f"{kind}/gradient/{name}"] = gradient.numpy().ravel()[:: max(1, gradient.numel() // 64)]
        for image, target in enumerate(made):
            for name, value in target.items():
                arrays[f"{kind}/{name}{image}"] = value.numpy()
        about[kind] = {
            **chosen,
            "shapes": shapes,
            "losses": {name: float(value) for name, value in losses.items()},
            "total": float(total),
        }
        print(kind, float(total))
    description = {
        "what": "LWDETR and SetCriterion of github.com/roboflow/rf-detr, float64, except that positions are resampled "
        "and anchors computed in float32; losses of training mode with all groups",
        "commit": COMMIT,
        "command": "PYTHONPATH=rf-detr python tests/golden/make_rfdetr.py",
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "numpy")},
        "seed": SEED,
        "classes": CLASSES,
        "queries": QUERIES,
        "groups": GROUPS,
        "dim": DIM,
        "width": WIDTH,
        "depth": DEPTH,
        "heads": HEADS,
        "objects": OBJECTS,
        "gain": GAIN,
        "models": about,
    }
    folder = Path(__file__).parent
    (folder / "rfdetr.json").write_text(json.dumps(description, separators=(",", ":")) + "\n", encoding="utf-8")
    np.savez_compressed(folder / "rfdetr.npz", **arrays)


WEIGHTS = {
    f"loss_{name}{suffix}": weight
    for suffix in ("", "_0", "_enc")
    for name, weight in (("ce", 1.0), ("bbox", 5.0), ("giou", 2.0))
}

if __name__ == "__main__":
    main()
