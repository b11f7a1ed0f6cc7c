"""Updates of torch and of Paddle that benchmarks time. Needs nothing of this repository until Paddle's are built."""

import time
from collections.abc import Callable, Sequence
from typing import Any


def get_torch_update(
    parameters: Any,
    compute_loss: Callable[[], Any],
    rate: float = 1e-4,
    clip: float | None = None,
    **options: Any,
) -> Callable[[], Any]:
    """Return an update by the gradients of torch's loss, clipped by the norm of all together, and its fused AdamW.

    The update returns the loss.
    """
    import torch

    learning = [parameter for parameter in parameters if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learning, rate, fused=True, **options)

    def update() -> Any:
        loss = compute_loss()
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(learning, clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return update


def get_paddle_update(
    model: Any, compute_loss: Callable[[], Any], rate: float = 1e-4, decay: float | None = None, clip: float = 0.0
) -> Callable[[], None]:
    """Return an update likewise, clipped as by the trainer and by its AdamW.

    Where ``decay`` is None, it is Paddle's AdamW with its own decay.
    """
    import paddle

    from paddlevit_dist.core.engine.fused_optimizers import FusedAdamW
    from paddlevit_dist.core.engine.multi_tensor import GradientList, clipping_factor

    parameters = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
    if decay is None:
        optimizer = paddle.optimizer.AdamW(rate, parameters=parameters)
    else:
        decays, groups = {each.name: decay for each in parameters}, [{"params": parameters, "weight_decay": decay}]
        optimizer = FusedAdamW(decays, learning_rate=rate, parameters=groups)

    gradients = GradientList(parameters)

    def update() -> None:
        compute_loss().backward()
        if clip:
            gradients.scale(clipping_factor(gradients.norm(), clip))
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)

    return update


def get_timed_step(model: Any, parameters: Sequence[Any], batch_size: int) -> Callable[[], float]:
    """Return a training step of a classifier on noise of 224 pixels, by Paddle's AdamW, that returns its seconds."""
    import paddle

    optimizer = paddle.optimizer.AdamW(1e-4, parameters=parameters, weight_decay=0.05)
    images, labels = paddle.randn([batch_size, 3, 224, 224]), paddle.randint(0, 1000, [batch_size])

    def step() -> float:
        started = time.perf_counter()
        paddle.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)
        return time.perf_counter() - started

    return step
