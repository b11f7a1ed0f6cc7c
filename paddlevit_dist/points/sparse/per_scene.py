"""Operations on whole scenes: vectors added to all their voxels, and normalization over them."""

from typing import Any

import paddle
from paddle import nn

from ...core.runtime import autocast
from ...core.runtime.autocast import as_dtype
from .layers import require
from .pooling import reduce_by_scene
from .switching import resolve_arguments
from .tensor import SparseTensor, concat_channels, empty_rows, require_sparse


def broadcast(x: SparseTensor, vectors: paddle.Tensor, mode: str = "add") -> SparseTensor:
    """Combine each voxel's features (N, C) with its scene's vector (scenes, C), such as output of ``GlobalPooling``.

    ``mode`` is "add", "multiply" or "concatenate", which takes any width. ValueError for an unknown mode, or a wrong
    shape.
    """
    require_sparse("broadcast", x, computes=mode != "concatenate")
    modes: dict[str, Any] = {"add": paddle.add, "multiply": paddle.multiply, "concatenate": concat_channels}
    if mode not in modes:
        raise ValueError(f"mode is '{mode}', expected one of {', '.join(modes)}")
    if vectors.ndim != 2 or vectors.shape[0] != x.plan.num_scenes:
        raise ValueError(f"vectors have shape {list(vectors.shape)}, expected ({x.plan.num_scenes}, channels)")
    if not x.features.shape[0]:
        extra_channels = vectors.shape[1] if mode == "concatenate" else 0
        return x.with_features(empty_rows(x.features, vectors, channels=x.features.shape[1] + extra_channels))
    return x.with_features(modes[mode](x.features, paddle.gather(vectors, x.plan.scenes(x.stride).numbers)))


class InstanceNorm(nn.Layer):
    """Normalization of each channel over the voxels of each scene, to mean 0 and variance 1.

    The result is scaled and shifted by learned ``weight`` and ``bias`` (1, C), as in MinkowskiEngine. ``epsilon``,
    added to the variance, is also accepted as ``eps``.
    """

    def __init__(self, num_features: int, epsilon: float = 1e-8, **kwargs: Any) -> None:
        super().__init__()
        (self.epsilon,) = resolve_arguments(self, kwargs, eps=epsilon)
        self.weight = self.create_parameter([1, num_features], default_initializer=nn.initializer.Constant(1.0))
        self.bias = self.create_parameter([1, num_features], is_bias=True)

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Return the normalized features (N, C)."""
        require(self, x, self.weight, self.weight.shape[1])
        if not x.features.shape[0]:
            return x.with_features(empty_rows(x.features, self.weight, self.bias))
        scenes = x.plan.scenes(x.stride)
        with autocast.off():  # sums over all voxels of a scene exceed the range of half precision
            features = as_dtype(x.features, self.weight.dtype)
            centered = features - paddle.gather(reduce_by_scene(features, scenes, paddle.mean), scenes.numbers)
            variance = reduce_by_scene(centered * centered, scenes, paddle.mean)  # (scenes, C)
            # Computed by scene: summing the gradients of all voxels into one row is ten times slower on CPUs.
            scale = self.weight * paddle.rsqrt(variance + self.epsilon)
            shift = self.bias.expand(scale.shape)
            scale, shift = (paddle.gather(per_scene, scenes.numbers) for per_scene in (scale, shift))
            return x.with_features(centered * scale + shift)

    def extra_repr(self) -> str:
        """Return the arguments that ``print(layer)`` shows."""
        return f"{self.weight.shape[1]}, epsilon={self.epsilon:g}"
