"""Made the files of this folder with PyTorch 2.13 and safetensors 0.8, for tests where neither is installed.

python make_files.py
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

FOLDER = Path(__file__).parent


def numbers(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.arange(int(np.prod(shape)), dtype="float32").reshape(shape) * 0.5 - 3.0)


def state() -> "OrderedDict[str, torch.Tensor]":
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


if __name__ == "__main__":
    wrapped = {"state_dict": state(), "epoch": 3, "optimizer": {"state": {0: {"step": torch.tensor(4.0)}}}}
    torch.save(wrapped, FOLDER / "zip.pth")
    torch.save(wrapped, FOLDER / "legacy.pth", _use_new_zipfile_serialization=False)
    plain = {name: tensor.detach().contiguous().clone() for name, tensor in state().items()}
    save_file(plain, FOLDER / "plain.safetensors", metadata={"format": "pt"})
