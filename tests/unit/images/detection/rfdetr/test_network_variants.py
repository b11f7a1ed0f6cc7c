"""The published RF-DETRs."""

from support.networks.published_sizes import require_sizes

from paddlevit_dist.core.tasks.model_factory import variant_options

# Millions of parameters, pixels and layers of the decoder in the tables of the authors' README.
BOXES = {"nano": (30.5, 384, 2), "small": (32.1, 512, 3), "medium": (33.7, 576, 4), "large": (33.9, 704, 4)}
MASKS = {"nano": 33.6, "small": 33.7, "medium": 35.7, "xlarge": 38.1, "xxlarge": 38.6}


def test_sizes_are_those_of_the_authors():
    require_sizes({f"rfdetr_{size}": row[0] for size, row in BOXES.items()}, num_classes=91)
    require_sizes({f"rfdetr_seg_{size}": millions for size, millions in MASKS.items()}, num_classes=91)


def test_images_layers_and_windows_are_those_of_the_authors():
    for size, (_, pixels, layers) in BOXES.items():
        options = variant_options(f"rfdetr_{size}")
        backbone = options["backbone_options"]
        assert (backbone["image_size"], options["decoder_layers"], backbone["windows"]) == (pixels, layers, 2)
    assert variant_options("rfdetr_base")["backbone_options"]["windows"] == 4
