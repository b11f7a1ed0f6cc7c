"""Names of the authors, of whom tests/golden/eomt.json has the rules."""

import numpy as np
import pytest
from support.networks.golden_eomt import MODELS, make_network, name_like_authors


@pytest.mark.parametrize("model", [name for name, about in MODELS.items() if about["parameters"] < 1e7])
def test_golden_eomt_names_of_authors_give_the_same_weights(model):
    first, second = make_network(model, "float32"), make_network(model, "float32", name_like_authors(model))
    parameters = dict(second.named_parameters())
    for name, value in first.named_parameters():
        np.testing.assert_array_equal(value.numpy(), parameters[name].numpy(), name)
    assert sum(value.size for value in parameters.values()) == MODELS[model]["parameters"]
