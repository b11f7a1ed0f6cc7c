"""What the networks for images bring: the families of classifiers; a table of variants has the names of each."""

from ...core.registry.manifest import CLASS_LABELS, Manifest

MANIFEST = Manifest(
    __package__,
    annotations=CLASS_LABELS,
    families=(
        ".vit:VisionTransformer",
        ".deit:DeiT",
        ".deit:DistilledDeiT",
        ".swin:SwinTransformer",
        ".cait:CaiT",
        ".pvt_v2:PyramidVisionTransformer",
        ".mit:MixVisionTransformer",
        ".mlp_mixer:MlpMixer",
        ".convnext:ConvNeXt",
        ".resnet:ResNet",
        ".hgnetv2:HGNetV2",
    ),
    aliases={
        "pvt_v2_b2_linear": "pvt_v2_b2_li",
        "pvtv2_b2_li": "pvtv2_b2_linear",
        "mixer_base_patch16_224": "mixer_b16_224",
        "mixer_large_patch16_224": "mixer_l16_224",
        "swin_base_patch4_window7_224_21k_1k": "swin_base_patch4_window7_224",
        "swin_base_patch4_window12_384_21k_1k": "swin_base_patch4_window12_384",
    },
    spellings={
        "model": {
            "vit_ti_16": "vit_tiny_patch16_224",
            "vit_s_16": "vit_small_patch16_224",
            "vit_s_32": "vit_small_patch32_224",
            "vit_b_16": "vit_base_patch16_224",
            "vit_b_32": "vit_base_patch32_224",
            "vit_l_16": "vit_large_patch16_224",
            "vit_l_32": "vit_large_patch32_224",
            "vit_h_14": "vit_huge_patch14_224",
            "swin_t": "swin_tiny_patch4_window7_224",
            "swin_s": "swin_small_patch4_window7_224",
            "swin_b": "swin_base_patch4_window7_224",
            "mixer_b_16": "mixer_b16_224",
            "mixer_l_16": "mixer_l16_224",
            "resnet_18": "resnet18",
            "resnet_34": "resnet34",
            "resnet_50": "resnet50",
            "resnet_101": "resnet101",
        },
    },
)
