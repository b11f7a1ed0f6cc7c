"""Values of scenes as a whole: vectors given to all their voxels, and normalization over them."""

from typing import Any

import paddle
from paddle import nn

from ...runtime import autocast
from ...runtime.autocast import as_dtype
from .layers import require
from .pooling import of_each_scene
from .switching import take_arguments
from .tensor import SparseTensor, no_rows, require_sparse, side_by_side


def broadcast(x: SparseTensor, vectors: paddle.Tensor, mode: str = "add") -> SparseTensor:
    """Each voxel's features with the vector of its scene.

    Args:
        vectors: (scenes, C), such as ``GlobalPooling`` gives; with "concatenate" of any width.
        mode: "add", "multiply" or "concatenate".

    Raises:
        ValueError: another mode, or other shapes.
    """
    require_sparse("broadcast", x, computes=mode != "concatenate")
    modes: dict[str, Any] = {"add": paddle.add, "multiply": paddle.multiply, "concatenate": side_by_side}
    if mode not in modes:
        raise ValueError(f"mode is '{mode}', expected one of {', '.join(modes)}")
    if vectors.ndim != 2 or vectors.shape[0] != x.plan.num_scenes:
        raise ValueError(f"vectors have shape {list(vectors.shape)}, expected ({x.plan.num_scenes}, channels)")
    if not x.features.shape[0]:
        more = vectors.shape[1] if mode == "concatenate" else 0
        return x.with_features(no_rows(x.features, vectors, channels=x.features.shape[1] + more))
    return x.with_features(modes[mode](x.features, paddle.gather(vectors, x.plan.scenes(x.stride).numbers)))


class Broadcast(nn.Layer):
    """``broadcast`` as a layer. Args: mode: "add", "multiply" or "concatenate"."""

    def __init__(self, mode: str = "add") -> None:
        super().__init__()
        self.mode = mode

    def forward(self, x: SparseTensor, vectors: paddle.Tensor) -> SparseTensor:
        return broadcast(x, vectors, self.mode)

    def extra_repr(self) -> str:
        return f"mode={self.mode}"


class InstanceNorm(nn.Layer):
    """Each channel of each scene with mean 0 and variance 1 over its voxels, then scaled and shifted by learned
    ``weight`` and ``bias`` (1, C), as in MinkowskiEngine.

    Args:
        num_features: channels.
        epsilon: added to the variance; ``eps`` likewise.
    """

    def __init__(self, num_features: int, epsilon: float = 1e-8, **others: Any) -> None:
        super().__init__()
        (self.epsilon,) = take_arguments(self, others, eps=epsilon)
        self.weight = self.create_parameter([1, num_features], default_initializer=nn.initializer.Constant(1.0))
        self.bias = self.create_parameter([1, num_features], is_bias=True)

    def forward(self, x: SparseTensor) -> SparseTensor:
        require(self, x, self.weight, self.weight.shape[1])
        if not x.features.shape[0]:
            return x.with_features(no_rows(x.features, self.weight, self.bias))
        scenes = x.plan.scenes(x.stride)
        with autocast.off():  # sums over all voxels of a scene leave the range of half precision
            features = as_dtype(x.features, self.weight.dtype)
            centered = features - paddle.gather(of_each_scene(features, scenes, paddle.mean), scenes.numbers)
            variance = of_each_scene(centered * centered, scenes, paddle.mean)  # (scenes, C)
            # By scene, since Paddle's CPU kernels add the gradient of one row for all voxels in ten times the time.
            scale = self.weight * paddle.rsqrt(variance + self.epsilon)
            shift = self.bias.expand(scale.shape)
            scale, shift = (paddle.gather(own, scenes.numbers) for own in (scale, shift))
            return x.with_features(centered * scale + shift)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, epsilon={self.epsilon:g}"
