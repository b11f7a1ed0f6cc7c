"""Make deim.json and deim.npz: maps, boxes, losses and gradients of DEIM's own networks, computed by torch in float64.

Run in a clone of github.com/Intellindust-AI-Lab/DEIM at the commit below, in an environment with torch, torchvision,
scipy and DEIM's other requirements:

    PYTHONPATH=DEIM python tests/golden/make_deim.py
"""

import importlib.metadata
import json
from pathlib import Path

import numpy as np
import recipe
import torch
from engine.backbone.hgnetv2 import HGNetv2
from engine.backbone.presnet import PResNet
from engine.deim.deim import DEIM
from engine.deim.deim_criterion import DEIMCriterion
from engine.deim.dfine_decoder import DFINETransformer
from engine.deim.hybrid_encoder import HybridEncoder
from engine.deim.matcher import HungarianMatcher
from engine.deim.rtdetrv2_decoder import RTDETRTransformerv2

COMMIT = "09d35d53d39ee3145a1e61e3a989b28b9468d1dd"
SEED, CLASSES, QUERIES, DIM, SIDE = 0, 7, 30, 32, 96
OBJECTS = [3, 0, 2]  # of each image
GAIN = {"sampling_offsets.bias": 10.0, "dec_bbox_head.0.layers.2.bias": 5.0}
WEIGHTS = {"loss_mal": 1, "loss_bbox": 5, "loss_giou": 2, "loss_fgl": 0.15, "loss_ddf": 1.5}
GRADIENTS = ("decoder.decoder.layers.0.linear1.weight", "encoder.input_proj.0.conv.weight", "decoder.enc_score_head.bias")


def build(kind):
    common = {"num_classes": CLASSES, "hidden_dim": DIM, "num_queries": QUERIES, "feat_channels": [DIM] * 3, "nhead": 4}
    common.update(num_layers=2, dim_feedforward=64, activation="silu", mlp_act="silu")
    if kind == "deim_dfine":
        backbone = HGNetv2("B0", use_lab=True, freeze_at=-1, freeze_norm=False, pretrained=False)
        channels, version = [256, 512, 1024], "dfine"
        decoder = DFINETransformer(num_points=[3, 6, 3], **common)
    else:
        backbone = PResNet(18, "d", freeze_at=-1, freeze_norm=False, pretrained=False, return_idx=[1, 2, 3])
        channels, version = [128, 256, 512], "rt_detrv2"
        decoder = RTDETRTransformerv2(num_points=[4, 4, 4], query_pos_method="as_reg", **common)
    encoder = HybridEncoder(
        channels, hidden_dim=DIM, nhead=4, dim_feedforward=64, depth_mult=0.34, expansion=0.5, version=version
    )
    return DEIM(backbone, encoder, decoder)


def load(network):
    state = {}
    for key, value in network.state_dict().items():
        if key.endswith(("num_batches_tracked", "num_points_scale", "decoder.up", "decoder.reg_scale")):
            state[key] = value
            continue
        gain = next((gain for ending, gain in GAIN.items() if key.endswith(ending)), 1.0)
        weight = recipe.golden_weight(SEED, key, tuple(value.shape)) * np.float32(gain)
        state[key] = torch.from_numpy(np.asarray(weight + np.float32(key.endswith("lab.scale"))))
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
    for kind in ("deim_dfine", "deim_rtdetrv2"):
        torch.set_default_dtype(torch.float32)
        network = build(kind)
        shapes = load(network)
        network.eval()
        images = torch.from_numpy(recipe.golden_image(SEED, len(OBJECTS), SIDE))
        with torch.no_grad():
            single = network(images)
        torch.set_default_dtype(torch.float64)
        torch.Tensor.float = torch.Tensor.double  # the criterion converts parts to float32
        network, images = network.double(), images.double()
        network.decoder.training = network.decoder.decoder.training = True  # all layers' outputs; norms stay
        network.decoder.num_denoising = 0
        outputs = network(images)
        arrays[f"{kind}/logits"] = outputs["pred_logits"].detach().numpy()
        arrays[f"{kind}/boxes"] = outputs["pred_boxes"].detach().numpy()
        error = {name: float((single[name] - outputs[name]).abs().max()) for name in ("pred_logits", "pred_boxes")}
        is_fine = kind == "deim_dfine"
        losses = ["mal", "boxes", *(["local"] if is_fine else [])]
        matcher = HungarianMatcher({"cost_class": 2, "cost_bbox": 5, "cost_giou": 2}, use_focal_loss=True)
        criterion = DEIMCriterion(
            matcher, WEIGHTS, losses, 0.75, 1.5, CLASSES, use_uni_set=is_fine
        )
        made = targets()
        found = criterion(outputs, made)
        total = sum(found.values())
        parameters = dict(network.named_parameters())
        gradients = torch.autograd.grad(total, [parameters[name] for name in GRADIENTS])
        for name, gradient in zip(GRADIENTS, gradients):
            arrays[f"{kind}/gradient/{name}"] = gradient.numpy().ravel()[:: max(1, gradient.numel() // 64)]
        for image, target in enumerate(made):
            for name, value in target.items():
                arrays[f"{kind}/{name}{image}"] = value.numpy()
        about[kind] = {
            "shapes": shapes,
            "float32_error": error,
            "losses": {name: float(value) for name, value in found.items()},
            "total": float(total),
        }
        print(kind, error, float(total))
    versions = {name: importlib.metadata.version(name) for name in ("torch", "torchvision", "numpy")}
    description = {
        "what": "networks and DEIMCriterion of github.com/Intellindust-AI-Lab/DEIM, batch norms in evaluation mode, "
        "without denoising, float64",
        "commit": COMMIT,
        "command": "PYTHONPATH=DEIM python tests/golden/make_deim.py",
        "versions": versions,
        "seed": SEED,
        "classes": CLASSES,
        "queries": QUERIES,
        "dim": DIM,
        "side": SIDE,
        "objects": OBJECTS,
        "gain": GAIN,
        "models": about,
    }
    folder = Path(__file__).parent
    (folder / "deim.json").write_text(json.dumps(description, separators=(",", ":")) + "\n", encoding="utf-8")
    np.savez_compressed(folder / "deim.npz", **arrays)


if __name__ == "__main__":
    main()
