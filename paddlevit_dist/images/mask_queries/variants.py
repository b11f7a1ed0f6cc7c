"""The published sizes of EoMT, by the name of each with its task.

Sources: Kerssies et al., arXiv 2503.19108, table 1; the configurations of tue-mps/eomt.
"""

from typing import Any

from ...core.tasks.model import Variants

_BLOCKS = {"small": 3, "base": 3, "large": 4, "giant": 5, "7b": 5}
# for images of 64 to 96 pixels, on CPUs, trained from scratch
_SMALL: dict[str, Any] = {
    "image_size": 64,
    "backbone": "vit_small_patch14_reg4_dinov2",
    "backbone_options": {
        "patch_size": 8,
        "embed_dim": 96,
        "depth": 6,
        "num_heads": 4,
        "registers": 1,
        "init_values": 0.1,
    },
    "num_queries": 16,
    "num_blocks": 2,
}


def list_variants(task: str, image_size: int = 640, num_queries: int = 200) -> Variants:
    """List the networks for ``task``: with DINOv2 and registers, patches of 16 pixels, and with DINOv3."""
    common = {"image_size": image_size, "num_queries": num_queries}
    variants: Variants = {f"eomt_{task}": common, f"eomt_{task}_shapes": _SMALL}
    for size, blocks in _BLOCKS.items():
        if size != "7b":
            variants[f"eomt_{task}_{size}"] = {
                **common,
                "num_blocks": blocks,
                "backbone": f"vit_{size}_patch14_reg4_dinov2",
                "backbone_options": {"patch_size": 16},
            }
        if size != "giant":
            bias = "" if size == "7b" else "_qkvb"
            variants[f"eomt_{task}_{size}_dinov3"] = {
                **common,
                "num_blocks": blocks,
                "backbone": f"vit_{size}_patch16_dinov3{bias}",
                "backbone_options": {"norm_epsilon": 1e-6},
            }
    return variants
