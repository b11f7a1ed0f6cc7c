"""TRAIN.SHARDING: each rank keeps the optimizer's state and the average of its share of the weights only.

Every rank computes all gradients, which data parallelism averages as usual, updates its share of the parameters and
broadcasts them. Weights are therefore equal on all ranks, and equal to the weights without sharding to rounding.

Source: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", arXiv 1910.02054,
stage 1. Paddle's engine for it, fleet, replaces launch, data parallelism and optimizer state; this needs one broadcast.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from ..distributed import all_gather, broadcast_flat, rank, running_statistics, world_size
from ..runtime.errors import UserError
from .multi_tensor import ForeachStep, Optimizer, flatten

_BUCKET_VALUES = 16 << 20  # float32 values that are broadcast together: 64 MiB


class Shards:
    """Assigns each float32 tensor of a model's state to the rank that updates it; ``owned`` names this rank's.

    Parameters go to the rank with the fewest values so far, the largest first. Running statistics and buffers belong to
    rank 0, whose statistics are saved. Raises UserError if there are fewer trained parameters than ranks, or one is not
    float32.
    """

    def __init__(self, model: paddle.nn.Layer) -> None:
        self._model = model
        parameters = dict(model.named_parameters())
        trained = [key for key, p in parameters.items() if not p.stop_gradient]
        if len(trained) < world_size():
            raise UserError(
                f"TRAIN.SHARDING: {len(trained)} trained parameters are fewer than {world_size()} processes; remove it"
            )
        if any(parameters[key].dtype != paddle.float32 for key in trained):
            raise UserError("TRAIN.SHARDING: expected float32 parameters; remove it")
        statistics = {id(tensor) for tensor in running_statistics(model)}  # named_parameters contains them
        frozen = [key for key, p in parameters.items() if p.stop_gradient and id(p) not in statistics]
        self._owners = {key: 0 for key, t in model.state_dict().items() if t.dtype == paddle.float32}
        for names in (trained, frozen):
            sizes = [0] * world_size()
            for name in sorted(names, key=lambda name: (-parameters[name].size, name)):
                self._owners[name] = int(np.argmin(sizes))
                sizes[self._owners[name]] += parameters[name].size
        self._trained_sizes = {key: parameters[key].size for key in trained}
        self._trained_buckets = self._make_buckets({key: parameters[key] for key in trained})
        self.owned = {key for key, owner in self._owners.items() if owner == rank()}

    def describe(self) -> str:
        """Format how much of the optimizer's state this rank keeps in one line."""
        sizes = self._trained_sizes
        own = sum(size for name, size in sizes.items() if name in self.owned)
        return f"TRAIN.SHARDING: this process keeps the optimizer's state of {own:,} of {sum(sizes.values()):,} values"

    def exchange_trained(self) -> None:
        """Broadcast the trained parameters from their owners. Every rank must call this."""
        self._exchange(self._trained_buckets)

    def exchange_state(self) -> None:
        """Broadcast the model's float32 state from its owners. Every rank must call this."""
        state = self._model.state_dict()
        self._exchange(self._make_buckets({name: state[name] for name in self._owners}))

    def _make_buckets(self, tensors: Mapping[str, paddle.Tensor]) -> list[tuple[int, list[paddle.Tensor]]]:
        buckets = []
        for owner in range(world_size()):
            sizes = {name: tensor.size for name, tensor in tensors.items() if self._owners[name] == owner}
            buckets += [(owner, [tensors[name] for name in names]) for names in make_buckets(sizes, _BUCKET_VALUES)]
        return buckets

    @paddle.no_grad()
    def _exchange(self, buckets: Sequence[tuple[int, list[paddle.Tensor]]]) -> None:
        for owner, tensors in buckets:
            sizes = [each.size for each in tensors]
            flat = broadcast_flat(flatten(tensors) if owner == rank() else None, sum(sizes), owner)
            if owner != rank():
                for tensor, values in zip(tensors, paddle.split(flat, sizes)):
                    paddle.assign(values.reshape(tensor.shape), output=tensor)

    @paddle.no_grad()
    def collect(self, tensors: Mapping[str, paddle.Tensor]) -> dict[str, np.ndarray]:
        """Return all ranks' float32 tensors on rank 0, an empty dictionary elsewhere. Every rank must call this."""
        tensors = {key: tensor for key, tensor in tensors.items() if tensor.dtype == paddle.float32}
        small = {key: tensor.numpy().copy() for key, tensor in tensors.items() if tensor.size == 1}
        shapes = {key: tuple(tensor.shape) for key, tensor in tensors.items() if tensor.size > 1}
        collected: dict[str, np.ndarray] = {}
        for owner, (their_shapes, their_small) in enumerate(all_gather((shapes, small))):
            collected.update(their_small)
            sizes = {key: int(np.prod(shape)) for key, shape in their_shapes.items()}
            for bucket in make_buckets(sizes, _BUCKET_VALUES):
                own = flatten([tensors[key] for key in bucket]) if owner == rank() else None
                flat = broadcast_flat(own, sum(sizes[key] for key in bucket), owner)
                if rank() == 0:
                    ends = np.cumsum([sizes[key] for key in bucket])[:-1]
                    for name, values in zip(bucket, np.split(flat.numpy(), ends)):
                        collected[name] = values.reshape(their_shapes[name])
        return collected if rank() == 0 else {}


def make_buckets(sizes: Mapping[str, int], most_values: int) -> Iterator[list[str]]:
    """Yield names in order, in lists of at most ``most_values`` values, or of one name."""
    bucket: list[str] = []
    total = 0
    for name, size in sizes.items():
        if bucket and total + size > most_values:
            yield bucket
            bucket, total = [], 0
        bucket.append(name)
        total += size
    if bucket:
        yield bucket


class ShardedStep:
    """A step of this rank's share by lists, and the exchange after it; a ``ForeachStep``."""

    def __init__(self, step: ForeachStep, shards: Shards) -> None:
        self._step, self._shards = step, shards
        self.gradients: Callable[[], Any] = step.gradients
        self.accepts: Callable[[Any], bool] = step.accepts
        self.prepare_undo: Callable[[Any], Callable[[], None]] = step.prepare_undo

    def apply(self, rate: float, gradients: Any, share: paddle.Tensor | None = None) -> None:
        """Update this rank's share and broadcast its weights."""
        self._step.apply(rate, gradients, share)
        self._shards.exchange_trained()


class ShardedOptimizer:
    """An optimizer of the parameters in ``shards.owned``, whose steps end with the exchange of weights."""

    def __init__(self, optimizer: Optimizer, model: paddle.nn.Layer, shards: Shards) -> None:
        self.optimizers = [optimizer]
        self._inner, self._shards = optimizer, shards
        self._parameters = [p for p in model.parameters() if not p.stop_gradient]
        self.get_lr, self.set_lr = optimizer.get_lr, optimizer.set_lr

    @property
    def _accumulators(self) -> dict[str, dict[str, paddle.Tensor]]:
        return self._inner._accumulators

    def clear_grad(self, set_to_zero: bool = True) -> None:
        """Clear the gradients of all parameters, also of other ranks' shares."""
        for parameter in self._parameters:
            parameter.clear_gradient(set_to_zero)

    def step(self) -> None:
        """Update this rank's share and exchange the weights. Every rank must call this."""
        self._inner.step()
        self._shards.exchange_trained()

    def foreach_step(self) -> ShardedStep | None:
        """Return the step by lists of this rank's share, or None if its optimizer has none."""
        step = self._inner.foreach_step()
        return None if step is None else ShardedStep(step, self._shards)
