"""PaddleViT's models that are not here, by the names in its files, and which of ours is nearest."""

from typing import NamedTuple

_TRANSFORMER, _WINDOWS, _PYRAMID = "vit_base_patch16_224", "swin_tiny_patch4_window7_224", "pvtv2_b2"
_DISTILLED, _CONVOLUTIONS, _SMALL = "deit_small_distilled_patch16_224", "convnext_tiny", "resnet18"
_PERCEPTRONS = "mixer_b16_224"


class NotHere(NamedTuple):
    """A family.

    Attributes:
        name: as PaddleViT's folder or paper has it.
        begins: how names of its models begin, in lower case and with "_" for "-".
        nearest: a registered model that does the same work in about the same way.
    """

    name: str
    begins: tuple[str, ...]
    nearest: str


FAMILIES = (
    NotHere("BEiT", ("beit_",), _TRANSFORMER),
    NotHere("BoTNet", ("botnet",), "resnet50"),
    NotHere("CoaT", ("coat_",), _PYRAMID),
    NotHere("ConvMixer", ("convmixer",), _CONVOLUTIONS),
    NotHere("ConvMLP", ("convmlp",), _CONVOLUTIONS),
    NotHere("CrossViT", ("crossvit",), "deit_small_patch16_224"),
    NotHere("CSwin", ("cswin",), _WINDOWS),
    NotHere("CvT", ("cvt_",), _PYRAMID),
    NotHere("CycleMLP", ("cyclemlp",), _PERCEPTRONS),
    NotHere("FF_Only", ("ff_base", "ff_tiny", "ff_only"), _PERCEPTRONS),
    NotHere("Focal Transformer", ("focal_",), _WINDOWS),
    NotHere("gMLP", ("gmlp", "gatedmlp"), _PERCEPTRONS),
    NotHere("HaloNet", ("halonet",), "resnet50"),
    NotHere("HVT", ("hvt_",), "deit_small_patch16_224"),
    NotHere("LeViT", ("levit", "levie_"), _DISTILLED),  # levie_128 is how its files spell it
    NotHere("MAE", ("mae", "vit_base_patch16_224_dec"), _TRANSFORMER),
    NotHere("MobileFormer", ("mobileformer", "mobile_former"), _SMALL),
    NotHere("MobileOne", ("mobileone",), _SMALL),
    NotHere("MobileViT", ("mobilevit", "mobile_vit"), _SMALL),
    NotHere("PiT", ("pit_",), _DISTILLED),
    NotHere("PoolFormer", ("poolformer",), _CONVOLUTIONS),
    NotHere("RegNet", ("regnet",), "resnet101"),
    NotHere("RepLKNet", ("replknet",), _CONVOLUTIONS),
    NotHere("RepMLP", ("repmlp",), _PERCEPTRONS),
    NotHere("ResMLP", ("resmlp",), _PERCEPTRONS),
    NotHere("ResT", ("rest_", "restv2"), _PYRAMID),
    NotHere("Shuffle Transformer", ("shuffle_",), _WINDOWS),
    NotHere("T2T-ViT", ("t2t_",), "deit_small_patch16_224"),
    NotHere("TopFormer", ("topformer", "topfomer"), "segformer_b0"),  # NAME is TopFomer for segmentation
    NotHere("ViP", ("vip_",), _PERCEPTRONS),
    NotHere("VOLO", ("volo",), _WINDOWS),
    NotHere("XCiT", ("xcit",), "cait_s24_224"),
    NotHere("DPT", ("dpt",), "upernet_vit_base"),
    NotHere("Segmenter", ("segmenter",), "upernet_vit_base"),
    NotHere("SETR", ("setr_",), "upernet_vit_base"),
    NotHere("Trans2Seg", ("trans2seg",), "segformer_b0"),
    NotHere("UPerNet on CSwin", ("upernet_cswin",), "upernet_swin_tiny"),
    NotHere("UPerNet on Focal Transformer", ("upernet_focal",), "upernet_swin_tiny"),
)


def not_here(name: str) -> str:
    """``PaddleViT's PiT is not here: the nearest is deit_small_distilled_patch16_224``; empty for any other name."""
    plain = name.lower().replace("-", "_")
    for family in FAMILIES:
        if plain.startswith(family.begins):
            return f"PaddleViT's {family.name} is not here: the nearest is {family.nearest}"
    return ""
