"""SegFormer-B0 of torch's own layers, for ``segmentation.py``: as its authors' code computes it.

Tokens are (batch, tokens, channels) in linear layers and norms, images (batch, channels, height, width) in
convolutions; attention is torch's fused one.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from training_updates import get_torch_update

WIDTHS, HEADS, REDUCTIONS, DEPTH, HEAD_WIDTH = (32, 64, 160, 256), (1, 2, 5, 8), (8, 4, 2, 1), 2, 256


def get_tokens(image: Any) -> Any:
    return image.flatten(2).transpose(1, 2)


def get_image(tokens: Any, size: Any) -> Any:
    return tokens.transpose(1, 2).reshape(tokens.shape[0], -1, *size)


class Attention(nn.Module):
    """Keys and values of an image that a strided convolution has made smaller."""

    def __init__(self, width: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.heads, self.reduction = heads, reduction
        self.q, self.kv, self.proj = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        if reduction > 1:
            self.sr, self.norm = nn.Conv2d(width, width, reduction, reduction), nn.LayerNorm(width)

    def forward(self, x: Any, size: Any) -> Any:
        batch, tokens, width = x.shape
        q = self.q(x).reshape(batch, tokens, self.heads, -1).transpose(1, 2)
        x = self.norm(get_tokens(self.sr(get_image(x, size)))) if self.reduction > 1 else x
        k, v = self.kv(x).reshape(batch, -1, 2, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, reduction: int) -> None:
        super().__init__()
        hidden = 4 * width
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.attn = Attention(width, heads, reduction)
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.dwconv = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)

    def forward(self, x: Any, size: Any) -> Any:
        x = x + self.attn(self.norm1(x), size)
        hidden = get_tokens(self.dwconv(get_image(self.fc1(self.norm2(x)), size)))
        return x + self.fc2(F.gelu(hidden))


class Stage(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        width, side = WIDTHS[index], 7 if index == 0 else 3
        before = WIDTHS[index - 1] if index else 3
        self.proj = nn.Conv2d(before, width, side, stride=2 if index else 4, padding=side // 2)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width, 1e-6)
        self.blocks = nn.ModuleList([Block(width, HEADS[index], REDUCTIONS[index]) for _ in range(DEPTH)])

    def forward(self, x: Any) -> Any:
        x = self.proj(x)
        size, x = x.shape[2:], self.before(get_tokens(x))
        for block in self.blocks:
            x = block(x, size)
        return get_image(self.after(x), size).contiguous()


class SegFormer(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stages = nn.ModuleList([Stage(index) for index in range(len(WIDTHS))])
        self.linears = nn.ModuleList([nn.Linear(width, HEAD_WIDTH) for width in WIDTHS])
        self.fuse = nn.Conv2d(len(WIDTHS) * HEAD_WIDTH, HEAD_WIDTH, 1, bias=False)
        self.norm, self.dropout = nn.BatchNorm2d(HEAD_WIDTH), nn.Dropout2d(0.1)
        self.classifier = nn.Conv2d(HEAD_WIDTH, classes, 1)

    def forward(self, x: Any) -> Any:
        """Logits (batch, classes, height / 4, width / 4) of images (batch, 3, height, width)."""
        maps: list[Any] = []
        for stage, linear in zip(self.stages, self.linears):
            x = stage(x)
            own = get_image(linear(get_tokens(x)), x.shape[2:])
            maps.insert(0, resized(own, maps[-1].shape[2:]) if maps else own)
        return self.classifier(self.dropout(torch.relu(self.norm(self.fuse(torch.cat(maps, 1))))))


def resized(x: Any, size: Any) -> Any:
    return F.interpolate(x, tuple(size), mode="bilinear", align_corners=False)


def get_step(images: Any, labels: Any, classes: int, ignored: int, threads: int, ranks: int) -> Callable[[], None]:
    """A training step: forward, loss at the labels' size, backward, fused AdamW; gradients of ``ranks`` over gloo."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model: Any = SegFormer(classes)
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    originals, truth = torch.from_numpy(images), torch.from_numpy(labels)

    def loss() -> Any:
        return F.cross_entropy(resized(model(originals), truth.shape[1:]), truth, ignore_index=ignored)

    return get_torch_update(model.parameters(), loss)
