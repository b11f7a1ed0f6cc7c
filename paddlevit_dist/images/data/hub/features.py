"""Types of columns: what ``datasets`` writes into the metadata of a schema, into JSON, or into a card; else Arrow's."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ....core.runtime.errors import UserError
from ....core.runtime.printing import shorten
from ....core.runtime.spelling import compose
from ....core.runtime.text_files import parse_json
from ....core.tasks.class_names import make_unique

IMAGE, CLASS, VALUE, LIST, STRUCT, OTHER = "image", "class", "value", "list", "struct", "other"
_LISTS = ("List", "LargeList", "Sequence", "FixedSizeList")
_YAML_LISTS = ("list", "large_list", "sequence")
_DEEPEST = 16
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
        if self.kind == LIST:
            return f"list of {self.item}"
        return self.dtype or self.kind


Features = Mapping[str, Feature]


def parse_features(stored: Any, source: str) -> dict[str, Feature]:
    """Parse the types of a schema's metadata or ``dataset_info.json``; a UserError if they are not such ones."""
    if not isinstance(stored, Mapping):
        raise UserError(f"{source}: its features are {shorten(repr(stored), 60)}, expected a type of each column")
    return {str(name): _parse(part, f"{source}, column {shorten(str(name), 60)}") for name, part in stored.items()}


def parse_card_features(stored: Any, source: str) -> dict[str, Feature]:
    """Parse the types in a card's YAML, a list of names with types; a UserError if they are not such ones."""
    return dict(_parse_entry(stored, source).fields) if isinstance(stored, list) else {}


def read_features(schema: Any, source: str, stored: Features | None = None) -> dict[str, Feature]:
    """Return the type of each column of an Arrow schema: that of its metadata, else of ``stored``, else Arrow's.

    Raises:
        UserError: the metadata are damaged.
    """
    content, known = (schema.metadata or {}).get(_KEY), dict[str, Feature]()
    if content is not None:
        try:
            info = parse_json(content)["info"]
            known = parse_features(info["features"], source) if info.get("features") is not None else {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{source}: its metadata of the library datasets are damaged ({shorten(error, 80)}): write it again"
            ) from error
    known = known or dict(stored or {})
    types: dict[str, Any] = {}
    for name, kind in zip(schema.names, schema.types):  # pyarrow finds no field by a name that two have
        types.setdefault(name, kind)
    return {name: known.get(name) or _from_arrow(kind) for name, kind in types.items()}


def _parse(part: Any, source: str, depth: int = 0) -> Feature:
    def parse(inner: Any) -> Feature:
        return _parse(inner, source, depth + 1)

    if depth > _DEEPEST:
        raise UserError(f"{source}: its type is nested more than {_DEEPEST} times")
    if isinstance(part, list) and len(part) == 1:
        return Feature(LIST, item=parse(part[0]))
    if not isinstance(part, Mapping):
        raise UserError(f"{source}: its type is {shorten(repr(part), 60)}, expected an object with _type")
    kind = part.get("_type")
    if not isinstance(kind, str):
        return Feature(STRUCT, fields={str(name): parse(inner) for name, inner in part.items()})
    if kind in _LISTS:
        return _make_list(parse(part.get("feature")), is_sequence=kind == "Sequence")
    if kind == "ClassLabel":
        return Feature(CLASS, _names(part, source))
    if kind == "Value":
        return Feature(VALUE, dtype=str(part.get("dtype")))
    return Feature(IMAGE, mode=_mode(part)) if kind == "Image" else Feature(OTHER, dtype=kind)


def _mode(part: Any) -> str:
    return str((part.get("mode") if isinstance(part, Mapping) else None) or "")


def _make_list(item: Feature, is_sequence: bool) -> Feature:
    """Return a list of a type; a sequence of a struct is stored as a struct of lists."""
    if is_sequence and item.kind == STRUCT:
        return Feature(STRUCT, fields={name: Feature(LIST, item=inner) for name, inner in item.fields.items()})
    return Feature(LIST, item=item)


def _names(part: Mapping[str, Any], source: str) -> tuple[str, ...] | None:
    names, number = part.get("names"), part.get("num_classes")
    if isinstance(names, Mapping):  # number -> name, in a card
        try:
            names = [names[key] for key in sorted(names, key=int)]
        except (TypeError, ValueError):
            raise UserError(f"{source}: expected the names of classes by their numbers") from None
    if names is None:
        return tuple(map(str, range(number))) if isinstance(number, int) and 0 <= number < 1 << 20 else None
    if not isinstance(names, list) or not all(isinstance(name, (str, int, float)) for name in names):
        raise UserError(f"{source}: the names of its classes are {shorten(repr(names), 60)}, expected a list of texts")
    composed = [compose(str(name).strip()) for name in names]
    return tuple(make_unique(composed, list(map(str, range(len(composed))))))


def _parse_entry(entry: Any, source: str, depth: int = 0) -> Feature:
    """Parse a type of a card: its name, a list of fields, or an object with one of several keys."""
    parse: Callable[[Any], Feature] = lambda inner: _parse_entry(inner, source, depth + 1)  # noqa: E731
    if depth > _DEEPEST:
        raise UserError(f"{source}: a type is nested more than {_DEEPEST} times")
    if isinstance(entry, str):
        return Feature(IMAGE) if entry == "image" else Feature(VALUE, dtype=entry)
    if isinstance(entry, list):
        named = [part for part in entry if isinstance(part, Mapping) and "name" in part]
        return Feature(STRUCT, fields={str(part["name"]): parse(part) for part in named})
    if not isinstance(entry, Mapping):
        raise UserError(f"{source}: a type is {shorten(repr(entry), 60)}, expected a name or an object")
    if "class_label" in entry:
        return Feature(CLASS, _names(entry["class_label"] or {}, source))
    if "image" in entry:
        return Feature(IMAGE, mode=_mode(entry["image"]))
    for key in ("dtype", "struct"):
        if key in entry:
            return parse(entry[key])
    for key in _YAML_LISTS:
        if key in entry:
            return _make_list(parse(entry[key]), is_sequence=key == "sequence")
    return Feature(OTHER, dtype=str(next((name for name in entry if name != "name"), "")))


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
    if types.is_dictionary(kind):
        return _from_arrow(kind.value_type)
    return Feature(VALUE, dtype=str(kind))


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
