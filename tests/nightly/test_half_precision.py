"""What ``-amp`` computes in half precision on a GPU at level O2, for a network of each task."""

from typing import Any

import pytest
from integration.test_half_precision import (
    FLOAT32_AT_O1,
    PRODUCTS,
    observe,
    require_float32_of_images_and_losses,
    require_products_in_half_precision,
)


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What each network does at each level."""
    return observe("O1", "O2")


@pytest.mark.parametrize("network", PRODUCTS)
def test_all_products_of_a_network_are_computed_in_half_precision(seen, network):
    require_products_in_half_precision(seen["O2"][network], network)
    assert FLOAT32_AT_O1 & set(seen["O2"][network]["half"]) <= {"softmax", "layer_norm"}


def test_images_are_normalized_in_float32_and_losses_are_float32(seen):
    require_float32_of_images_and_losses(seen["O2"])


def test_o2_computes_norms_and_softmax_in_half_precision_where_nothing_else_came_in(seen):
    assert seen["O2"]["vit"]["half"]["softmax"] == 2 and seen["O2"]["vit"]["float32"]["layer_norm"] == 5
    assert seen["O2"]["pvt"]["half"]["layer_norm"] == 30


def test_a_vit_with_fused_attention_computes_the_same_at_both_levels(seen):
    assert seen["O2"]["fused attention"] == seen["O1"]["fused attention"]
