"""What compiled loops for CPUs bring: faster layers, losses and transforms of the same results."""

from ...core.registry.manifest import Manifest

MANIFEST = Manifest(
    __package__,
    requires=("numba",),
    functions={
        "CompiledTrainingTransform": ".transforms:CompiledTrainingTransform",
        "accelerate": ".accelerate:accelerate",
        "gaussian_losses": ".layers:gaussian_losses",
        "move_toward": ".layers:move_toward",
        "normalized_linear": ".layers:normalized_linear",
        "resized_cross_entropy": ".layers:resized_cross_entropy",
        "sample_maps": ".layers:sample_maps",
    },
)
