"""Blocks of Point Transformer V3 of torch's own layers, for ``sorted_points.py``: as its authors' code computes them.

Attention is that of github.com/Pointcept/Pointcept without flash attention, the convolution a stand-in for spconv's.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn


class OffsetConvolution(nn.Module):
    """Rows gathered, multiplied and added for each offset of a kernel of 27."""

    def __init__(self, channels: int, pairs: list[Any]) -> None:
        super().__init__()
        self.pairs = pairs
        self.weight = nn.Parameter(torch.randn(len(pairs), channels, channels) * 0.05)
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Any) -> Any:
        out = torch.zeros_like(x)
        for weight, (out_rows, in_rows) in zip(self.weight, self.pairs):
            out.index_add_(0, out_rows, x[in_rows] @ weight)
        return out + self.bias


class Block(nn.Module):
    def __init__(self, channels: int, heads: int, patch_size: int, tables: list[Any], convolution: Any) -> None:
        super().__init__()
        self.heads, self.patch_size, (self.rows, self.places) = heads, patch_size, tables
        self.cpe = nn.Sequential(convolution, nn.Linear(channels, channels), nn.LayerNorm(channels))
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))

    def attend(self, x: Any) -> Any:
        channels = x.shape[1]
        qkv = self.qkv(x)[self.rows].reshape(-1, self.patch_size, 3, self.heads, channels // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(dim=0)
        weights = torch.softmax((q * (channels // self.heads) ** -0.5) @ k.transpose(-2, -1), dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(-1, channels)[self.places])

    def forward(self, x: Any) -> Any:
        x = x + self.cpe(x)
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def get_update(file: str, patch_size: int, has_convolution: bool, channels: int, heads: int) -> Callable[[], float]:
    """Forward, backward and AdamW, in seconds; ``file`` has the rows of patches and pairs of the convolution."""
    torch.set_num_threads(1)
    with np.load(file) as arrays:
        rows, places = (torch.from_numpy(arrays[name].astype(np.int64)) for name in ("rows", "places"))
        pairs = [torch.from_numpy(part) for part in np.split(arrays["pairs"], arrays["ends"][:-1], axis=1)]

    def build_first() -> Any:
        return OffsetConvolution(channels, pairs) if has_convolution else nn.Linear(channels, channels)

    tables = zip(rows, places)
    model = nn.Sequential(*(Block(channels, heads, patch_size, list(each), build_first()) for each in tables))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    x = torch.randn(places.shape[1], channels)

    def update() -> float:
        started = time.perf_counter()
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - started

    return update
