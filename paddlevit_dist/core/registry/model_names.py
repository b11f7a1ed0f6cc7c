"""Names of the package's models, and the input that their weights expect, without an import of Paddle.

``make reference`` writes them to model_names.json: it imports the families of all manifests, and
takes the names of its ``variants`` and its ``expected_inputs``.
"""

import functools
import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("model_names.json")


@functools.cache
def read_model_names() -> dict[str, dict[str, dict[str, Any] | None]]:
    """Return for each class, by its location, its names with the fields of ``find_input_fields``."""
    names: dict[str, dict[str, dict[str, Any] | None]] = json.loads(FILE.read_text(encoding="utf-8"))
    return names  # not by text_files, which needs PyYAML: ``version`` needs no package


@functools.cache
def _collect_inputs() -> dict[str, dict[str, Any]]:
    rows = (row for names in read_model_names().values() for row in names.items())
    return {
        name: {field: tuple(value) if isinstance(value, list) else value for field, value in fields.items()}
        for name, fields in rows
        if fields is not None
    }


def find_input_fields(model: str) -> dict[str, Any] | None:
    """Return the arguments of ``ExpectedInput`` that differ from its defaults; None without published weights."""
    return _collect_inputs().get(model)
