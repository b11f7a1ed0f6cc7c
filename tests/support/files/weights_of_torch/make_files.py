"""Created this folder's files with PyTorch 2.13 and safetensors 0.8, for tests where neither is installed.

python make_files.py
"""

import json
import math
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

FOLDER = Path(__file__).parent
GOLDEN = FOLDER.parents[2] / "golden" / "rfdetr_seg.json"


def numbers(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.arange(int(np.prod(shape)), dtype="float32").reshape(shape) * 0.5 - 3.0)


def state() -> OrderedDict[str, torch.Tensor]:
    whole = numbers(6, 4)
    entries = OrderedDict(
        weight=whole,
        turned=whole.t(),  # the same memory, other strides
        part=whole[2:4, 1:],
        half=numbers(2, 3).half(),
        bfloat=numbers(2, 3).bfloat16(),
        double=numbers(3).double(),
        counts=torch.tensor([[1, -2], [3, 4]]),
        bytes=torch.tensor([0, 7, 255], dtype=torch.uint8),
        flags=torch.tensor([True, False]),
        scalar=torch.tensor(2.5),
        empty=torch.zeros(0, 3),
        parameter=torch.nn.Parameter(numbers(2, 2)),
    )
    entries._metadata = OrderedDict({"": {"version": 1}})
    return entries


def vit() -> OrderedDict[str, torch.Tensor]:
    """A ViT under timm's names: 32 pixels, patches of 8, 48 channels in 4 heads, 1 block, 5 classes."""
    shapes = {
        "cls_token": (1, 1, 48),
        "pos_embed": (1, 17, 48),
        "patch_embed.proj.weight": (48, 3, 8, 8),
        "patch_embed.proj.bias": (48,),
        "blocks.0.norm1.weight": (48,),
        "blocks.0.norm1.bias": (48,),
        "blocks.0.attn.qkv.weight": (144, 48),
        "blocks.0.attn.qkv.bias": (144,),
        "blocks.0.attn.proj.weight": (48, 48),
        "blocks.0.attn.proj.bias": (48,),
        "blocks.0.norm2.weight": (48,),
        "blocks.0.norm2.bias": (48,),
        "blocks.0.mlp.fc1.weight": (48, 48),
        "blocks.0.mlp.fc1.bias": (48,),
        "blocks.0.mlp.fc2.weight": (48, 48),
        "blocks.0.mlp.fc2.bias": (48,),
        "norm.weight": (48,),
        "norm.bias": (48,),
        "head.weight": (5, 48),
        "head.bias": (5,),
    }
    generator = np.random.default_rng(7)
    return OrderedDict(
        (name, torch.from_numpy(generator.uniform(-0.3, 0.3, shape).astype("float32")))
        for name, shape in shapes.items()
    )


def rfdetr(first: int) -> OrderedDict[str, torch.Tensor]:
    """An RF-DETR Seg's state: array n, of half precision, begins at number ``first`` + n of one storage."""
    storage = torch.from_numpy(np.random.default_rng(3).uniform(-0.3, 0.3, 22_000)).half()
    shapes = json.loads(GOLDEN.read_text())["models"]["seg_small"]["state"]
    return OrderedDict(
        (name, storage[first + number :][: math.prod(shape)].reshape(shape))
        for number, (name, shape) in enumerate(shapes.items())
    )


def rfdetr_files() -> None:
    """Files as the package rfdetr writes them: of its own training, and Lightning's of a compiled network."""
    about = {"num_classes": 6, "class_names": [f"class {number}" for number in range(6)], "group_detr": 3}
    torch.save(
        {"model": rfdetr(0), "ema_model": rfdetr(500), "args": Namespace(**about), "epoch": 3},
        FOLDER / "rfdetr_seg.pth",
    )
    average = {f"module.model.{name}": value for name, value in rfdetr(500).items()}
    content = {
        "state_dict": {f"model._orig_mod.{name}": value for name, value in rfdetr(0).items()},
        "callbacks": {"RFDETREMACallback": {"latest_update_step": 7, "average_model_state_dict": average}},
        "optimizer_states": [{"state": {0: {"step": torch.tensor(4.0), "exp_avg": numbers(3)}}, "param_groups": []}],
        "loops": {"fit_loop": {"state_dict": {}}},
        "args": about,
        "model_name": "RFDETRSegSmall",
    }
    torch.save(content, FOLDER / "rfdetr_seg.ckpt")


if __name__ == "__main__":
    rfdetr_files()
    torch.save(vit(), FOLDER / "vit.pth")
    torch.save({"model": vit()}, FOLDER / "vit_legacy.pth", _use_new_zipfile_serialization=False)
    wrapped = {"state_dict": state(), "epoch": 3, "optimizer": {"state": {0: {"step": torch.tensor(4.0)}}}}
    torch.save(wrapped, FOLDER / "zip.pth")
    torch.save(wrapped, FOLDER / "legacy.pth", _use_new_zipfile_serialization=False)
    plain = {name: tensor.detach().contiguous().clone() for name, tensor in state().items()}
    save_file(plain, FOLDER / "plain.safetensors", metadata={"format": "pt"})
