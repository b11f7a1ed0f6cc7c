"""What no shape tells of classifiers: into how many heads their channels are divided. Sizes are tested by family."""

from support.networks.every_classifier import NAMES

from paddlevit_dist.core.tasks.model_factory import variant_options

# Channels of a head by the beginning of the name, the first that fits: Dosovitskiy et al., table 1 (ViT-Huge: 1280 by
# 16); Zhai et al., "Scaling Vision Transformers", table 2, and OpenCLIP's for g and G; SigLIP's So400m (1152 by 16)
# and giant-opt (1536 by 16); DINOv3's H+ and 7B (1280 by 20, 4096 by 32); Liu et al.: 32; Touvron et al., CaiT: 48;
# PVTv2's and MiT's tables: heads 1, 2, 5 and 8 for 64, 128, 320 and 512 channels, half as many in the smallest.
CHANNELS = {
    "vit_huge_plus_": 64,
    "vit_huge_": 80,
    "vit_giant_patch14_clip": 88,
    "vit_gigantic_": 104,
    "vit_giantopt_": 96,
    "vit_so400m_": 72,
    "vit_7b_": 128,
    "swin_": 32,
    "cait_": 48,
    "pvt_v2_b0": 32,
    "pvtv2_b0": 32,
    "mit_b0": 32,
    "": 64,
}


def test_heads_are_as_wide_as_published():
    found, expected = {}, {}
    for name in NAMES:
        options = variant_options(name)
        heads, widths = options.get("num_heads"), options.get("embed_dims", options.get("embed_dim"))
        if heads is None:
            continue  # convolutions and mixers
        if isinstance(heads, int):
            heads, widths = (heads,), (widths,)
        elif isinstance(widths, int):  # of the first stage, doubled by each of the next
            widths = tuple(widths * 2**stage for stage in range(len(heads)))
        found[name] = {width / number for width, number in zip(widths, heads, strict=True)}
        expected[name] = {next(channels for start, channels in CHANNELS.items() if name.startswith(start))}
    assert len(found) > 150 and found == expected
