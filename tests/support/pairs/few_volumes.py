"""The package's phantoms in small numbers, as a user's module registers them."""

from paddlevit_dist import register_dataset
from paddlevit_dist.volumes.phantoms import SyntheticLandmarks
from paddlevit_dist.volumes.segmentation.phantoms import SyntheticOrgans

_SIZES = {"train": 8, "val": 3}


class FewOrgans(SyntheticOrgans):
    def __len__(self) -> int:
        return _SIZES[self.split]


class FewHeads(SyntheticLandmarks):
    def __len__(self) -> int:
        return _SIZES[self.split]


register_dataset("few_organs", FewOrgans)
register_dataset("few_heads", FewHeads)
