"""Types of columns: those that the library ``datasets`` finds in a schema, in JSON or in a card; else Arrow's."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ....core.runtime.errors import UserError
from ....core.runtime.printing import shorten
from ....core.runtime.spelling import compose
from ....core.runtime.text_files import parse_json
from ....core.tasks.class_names import make_unique

IMAGE, CLASS, VALUE, LIST, STRUCT, OTHER = "image", "class", "value", "list", "struct", "other"
_KEY = b"huggingface"


class Feature(NamedTuple):
    """The type of a column, or of a part of it.

    Attributes:
        kind: IMAGE, CLASS (a class number), VALUE, LIST, STRUCT, or OTHER.
        names: of the classes, CLASS only; None: they have none.
        fields: of a STRUCT.
        item: of a LIST.
        dtype: of a VALUE, such as int64, as ``datasets`` or Arrow write it.
        mode: Pillow's mode that ``datasets`` converts an IMAGE to; empty: the stored one.
    """

    kind: str
    names: tuple[str, ...] | None = None
    fields: "Mapping[str, Feature]" = {}
    item: "Feature | None" = None
    dtype: str = ""
    mode: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether values are whole numbers or truth values."""
        return self.kind == CLASS or self.dtype.startswith(("int", "uint", "bool"))

    @property
    def is_real(self) -> bool:
        """Whether values are floating-point numbers."""
        return self.kind == VALUE and self.dtype.startswith(("float", "double", "half"))

    @property
    def is_binary(self) -> bool:
        """Whether values are bytes."""
        return self.kind == VALUE and self.dtype.startswith(("binary", "large_binary"))

    @property
    def is_text(self) -> bool:
        """Whether values are texts."""
        return self.kind == VALUE and "string" in self.dtype

    def __str__(self) -> str:
        return f"list of {self.item}" if self.kind == LIST else self.dtype or self.kind


Features = Mapping[str, Feature]


def import_library(path: str) -> Any:
    """Import ``datasets``; a UserError with what to install if it is missing, or does not fit what is installed."""
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"{path}: Parquet and Arrow files with images need the library datasets, but {shorten(error, 80)}: pip "
            "install 'datasets>=4.2,<6'"
        ) from error
    return datasets


@contextlib.contextmanager
def _parsed(source: str) -> Iterator[None]:
    """Turn what the library raises for damaged types into a UserError of one line."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{source}: its types of the library datasets are damaged ({shorten(error, 80)}): write it again"
        ) from error


def parse_features(stored: Any, source: str) -> dict[str, Feature]:
    """Parse the types in JSON, an object, or in the YAML of a card, a list; a UserError if they are not such ones."""
    library = import_library(source)
    with _parsed(source):
        if isinstance(stored, list):
            found = dict(library.Features._from_yaml_list(stored))
        else:
            kinds = {name: part.get("_type") if isinstance(part, dict) else None for name, part in stored.items()}
            known = {name for name, kind in kinds.items() if not isinstance(kind, str) or hasattr(library, kind)}
            found = {name: library.Features.from_dict({name: stored[name]})[name] for name in stored if name in known}
        return {name: _convert(part, library) for name, part in found.items()}


def read_features(schema: Any, source: str, stored: Features | None = None) -> dict[str, Feature]:
    """Return the type of each column of an Arrow schema: that of its metadata, else of ``stored``, else Arrow's.

    Raises:
        UserError: the metadata are damaged, or the library ``datasets`` that reads them is missing.
    """
    content, known = (schema.metadata or {}).get(_KEY), dict[str, Feature]()
    if content is not None:
        with _parsed(source):
            info = parse_json(content)["info"]
            known = parse_features(info["features"], source) if info.get("features") is not None else {}
    known = known or dict(stored or {})
    types: dict[str, Any] = {}
    for name, kind in zip(schema.names, schema.types):  # pyarrow finds no field by a name that two have
        types.setdefault(name, kind)
    return {name: known.get(name) or _from_arrow(kind) for name, kind in types.items()}


def _convert(part: Any, library: Any) -> Feature:
    if isinstance(part, dict):
        return Feature(STRUCT, fields={str(name): _convert(inner, library) for name, inner in part.items()})
    if isinstance(part, library.ClassLabel):
        names = [compose(str(name).strip()) for name in part.names]
        return Feature(CLASS, tuple(make_unique(names, list(map(str, range(len(names)))))))
    if isinstance(part, library.Value):
        return Feature(VALUE, dtype=part.dtype)
    if isinstance(part, library.Image):
        return Feature(IMAGE, mode=getattr(part, "mode", None) or "")
    item = part[0] if isinstance(part, list) else getattr(part, "feature", None)
    return Feature(OTHER, dtype=type(part).__name__) if item is None else Feature(LIST, item=_convert(item, library))


def _from_arrow(kind: Any) -> Feature:
    from pyarrow import types

    kind = getattr(kind, "storage_type", kind)  # of an extension
    if types.is_struct(kind):
        fields = {kind.field(number).name: kind.field(number).type for number in range(kind.num_fields)}
        if set(fields) <= {"bytes", "path"} and is_binary(fields.get("bytes")):
            return Feature(IMAGE)
        return Feature(STRUCT, fields={name: _from_arrow(inner) for name, inner in fields.items()})
    if is_list(kind):
        return Feature(LIST, item=_from_arrow(kind.value_type))
    return _from_arrow(kind.value_type) if types.is_dictionary(kind) else Feature(VALUE, dtype=str(kind))


def find_column(path: str, names: Iterable[str]) -> tuple[str, str]:
    """Return the column that a path means, and the field in it or "": a column's name may itself have a point."""
    top, _, field = path.partition(".")
    return (path, "") if path in names else (top, field)


def find_feature(features: Features, path: str) -> Feature | None:
    """Return the type of a column, or of a field in its structs, of lists for a list of structs; None if missing."""
    top, field = find_column(path, features)
    feature = features.get(top)
    if not field or feature is None:
        return feature
    if feature.kind == LIST and feature.item is not None:
        inner = feature.item.fields.get(field)
        return None if inner is None else Feature(LIST, item=inner)
    return feature.fields.get(field)


def is_list(kind: Any) -> bool:
    """Return whether an Arrow type is any kind of list."""
    return str(kind).startswith(("list", "large_list", "fixed_size_list"))


def is_binary(kind: Any) -> bool:
    """Return whether an Arrow type is any kind of bytes."""
    return str(kind) in ("binary", "large_binary", "binary_view") or str(kind).startswith("fixed_size_binary")
