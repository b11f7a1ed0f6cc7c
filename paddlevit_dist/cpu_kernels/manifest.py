"""What compiled loops for CPUs bring: faster layers, losses, transforms and updates of the same results."""

from ..registry.manifest import Manifest

MANIFEST = Manifest(
    __package__,
    requires=("numba",),
    functions={
        "CompiledTrainingTransform": ".transforms:CompiledTrainingTransform",
        "accelerate": ".accelerate:accelerate",
        "averages": ".updates:averages",
        "gradients": ".updates:gradients",
        "optimizer_step": ".updates:optimizer_step",
        "resized_cross_entropy": ".layers:resized_cross_entropy",
    },
)
