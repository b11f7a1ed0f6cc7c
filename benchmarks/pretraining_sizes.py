"""What ``pretraining.py`` and torch's side of it, ``pretraining_peer.py``, compute: networks, images, batches."""

from smallest import sized

DINO, SUPERVISED = "dino", "supervised"
DECODERS = {"mae_512x8": (512, 8, 16), "mae_128x2": (128, 2, 4)}  # width, depth, heads
MODEL, SIDE, SMALL_SIDE = "vit_tiny_patch16_224", sized(224, 32), sized(96, 16)
BATCH = {DINO: sized(4, 2)}
SMALL_VIEWS, OUTPUTS = 4, sized(65536, 64)
CLIP = 3.0


def get_batch(name: str) -> int:
    """The number of images of an update."""
    return BATCH.get(name, sized(8, 2))
