"""The names that are read without Paddle are those of the classes."""

import importlib.util

from support.processes import ROOT

from paddlevit_dist.core.registry.model_names import FILE, find_input_fields
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.runtime.lazy_names import import_object
from paddlevit_dist.images.models.pretrained_input import ExpectedInput


def test_the_file_is_what_the_families_say():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    assert FILE.read_text(encoding="utf-8") == reference.model_names(), "run make reference"


def test_inputs_belong_to_variants_of_their_class():
    for location in REGISTRY.families:
        family = import_object(location)
        inputs = getattr(family, "expected_inputs", {})
        for name in family.variants:
            fields = find_input_fields(name)
            assert inputs.get(name) == (None if fields is None else ExpectedInput(**fields)), name
        assert set(getattr(family, "expected_inputs", {})) <= set(family.variants), location
