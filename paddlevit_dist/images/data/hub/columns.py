"""What the columns mean: images, and classes, lists of labels, objects with boxes or label maps, by types and names."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from ....core.registry.manifest import BOX_LABELS, CLASS_LABELS, MASK_LABELS, NO_LABELS, TAG_LABELS
from ....core.runtime import column_roles as roles
from ....core.runtime.errors import UserError
from ....core.runtime.printing import shorten
from .features import CLASS, IMAGE, LIST, STRUCT, VALUE, Feature, Features, find_column, find_feature

UNLABELED = ""  # contents of images whose other columns are not looked at
_PARTS = {
    **{"label": roles.LABEL_OF_OBJECT, "area": roles.AREA, "crowd": roles.CROWD, "id": roles.ID_OF_OBJECT},
    "mask": roles.MASK_OF_OBJECT,
}


class HubChoices(NamedTuple):
    """What the user says: DATA.TABLE.IMAGE, LABELS and CONFIGURATION."""

    image: str | None = None
    labels: tuple[str, ...] = ()
    configuration: str | None = None


class ObjectColumns(NamedTuple):
    """The parts of objects: each is a path of a column, or of a field in ``parent``; "" if there is none.

    Attributes:
        parent: column of a struct of lists, or a list of structs; "": the parts are columns.
        box: boxes, written as ``form``: XYXY, XYWH or CXCYWH.
        label, area, crowd, id: of each object.
        names: of the classes; None: labels are texts, or numbers without names.
        height, width, image_id: columns of the image.
        mask: of each object, which is told and not read.
    """

    parent: str
    box: str
    form: str
    label: str = ""
    area: str = ""
    crowd: str = ""
    id: str = ""
    names: tuple[str, ...] | None = None
    height: str = ""
    width: str = ""
    image_id: str = ""
    mask: str = ""


class HubColumns(NamedTuple):
    """The columns that are read.

    Attributes:
        image: of the images.
        labels: one of classes or lists of them, or one of each class; or the one of label maps; empty: none.
        objects: of boxes; None: none.
    """

    image: str
    labels: tuple[str, ...] = ()
    objects: ObjectColumns | None = None

    def describe(self) -> str:
        """Return what is read, for the log."""
        if self.objects is not None:
            place = f"{self.objects.parent}." if self.objects.parent else ""
            label = f", classes in {place}{self.objects.label}" if self.objects.label else ""
            mask = f"; masks in {place}{self.objects.mask} are not read" if self.objects.mask else ""
            box = f"{place}{self.objects.box}"
            return f"images in column {self.image}, boxes ({self.objects.form}) in {box}{label}{mask}"
        labels = f", labels in {shorten(', '.join(self.labels), 80)}" if self.labels else ", no labels"
        return f"images in column {self.image}{labels}"


def is_image(name: str, feature: Feature) -> bool:
    """Return whether a column has images: by its type, or bytes under a usual name, as other programs write them."""
    is_usual = roles.IMAGE_IN_ROW.has(name) or (roles.LABEL_MAP.has(name) and name.lower() not in ("label", "labels"))
    return feature.kind == IMAGE or (feature.is_binary and is_usual)


def _images(features: Features) -> list[str]:
    return [name for name, feature in features.items() if is_image(name, feature)]


def find_contents(features: Features) -> str:
    """Return the annotations that the columns are most likely for."""
    if _list_objects(features):
        return BOX_LABELS
    if _find_map(features, HubChoices()) is not None:
        return MASK_LABELS
    return CLASS_LABELS


def has_images(features: Features) -> bool:
    """Return whether there is a column of images."""
    return bool(_images(features))


def refuse_without_images(features: Features, source: str) -> NoReturn:
    """Raise a UserError that lists the columns of a file without images."""
    raise UserError(
        f"{source}: no column of images among {_show(features)}: paths of images are read with -dataset=table, bytes "
        "of images in a column called image; images at addresses are to be downloaded first"
    )


def choose_columns(features: Features, contents: str, choices: HubChoices, source: str) -> HubColumns:
    """Choose the columns for a task that reads ``contents``.

    Raises:
        UserError: a chosen column does not exist, nothing fits, or several do; with the columns of ``source``.
    """
    _require_chosen(features, choices, source)
    if contents == MASK_LABELS:
        pair = _find_map(features, choices)
        if pair is None:
            images = _images(features)
            many = f", and {shorten(', '.join(images), 80)} may be each" if len(images) > 2 else ""
            raise UserError(
                f"{source}: no two columns of images and their label maps among {_show(features)}{many}: set "
                "DATA.TABLE.IMAGE and DATA.TABLE.LABELS"
            )
        return HubColumns(pair[0], (pair[1],))
    image = _find_image(features, choices, source)
    if contents == BOX_LABELS:
        return HubColumns(image, objects=_find_objects(features, choices, source))
    if choices.labels:
        return HubColumns(image, choices.labels)
    try:
        found = None if contents == UNLABELED else _find_labels(features, contents == TAG_LABELS, source)
    except UserError:
        if contents != NO_LABELS:  # which are only for the score of an evaluation
            raise
        found = None
    if found is None and contents not in (NO_LABELS, UNLABELED):
        raise UserError(
            f"{source}: no column of labels among {_show(features)}: set DATA.TABLE.LABELS to one; images without "
            "labels are for 'predict' and tasks that learn without labels"
        )
    return HubColumns(image, () if found is None else (found,))


def _require_chosen(features: Features, choices: HubChoices, source: str) -> None:
    """Raise a UserError unless the columns exist that the user says."""
    missing = next((name for name in choices.labels if find_feature(features, name) is None), None)
    key = "LABELS"
    if choices.image is not None and choices.image not in features:
        missing, key = choices.image, "IMAGE"
    if missing is not None:
        raise UserError(f"{source} has no column {shorten(missing, 60)} (DATA.TABLE.{key}), only {_show(features)}")


def _show(features: Features) -> str:
    return shorten(", ".join(f"{name} ({feature})" for name, feature in features.items()), 160)


def _find_image(features: Features, choices: HubChoices, source: str) -> str:
    if choices.image is not None:
        feature = features[choices.image]
        if feature.kind not in (IMAGE, VALUE):
            raise UserError(f"{source}, column {choices.image} (DATA.TABLE.IMAGE): expected images, found {feature}")
        return choices.image
    others = [name for name in _images(features) if name not in choices.labels]
    found = _prefer(others, roles.IMAGE_IN_ROW)
    if len(found) != 1:
        what = f"images in several columns, {', '.join(found)}" if found else f"no column of images: {_show(features)}"
        inside = [name for name, feature in features.items() if _holds_images(feature)]
        advice = "choose one with DATA.TABLE.IMAGE NAME"
        if not found and inside:
            advice = f"write the images inside of {inside[0]} to a column of their own, one in each row"
        raise UserError(f"{source}: {shorten(what, 200)}; {advice}")
    return found[0]


def _holds_images(feature: Feature) -> bool:
    """Return whether there are images in lists or structs."""
    inner = [*feature.fields.values(), *([] if feature.item is None else [feature.item])]
    return any(part.kind == IMAGE or _holds_images(part) for part in inner)


def _prefer(names: Sequence[str], role: roles.Role) -> list[str]:
    """Return the one name that fits a role best, or all names if none does."""
    known = role.find_all(names) if len(names) > 1 else []
    return [names[known[0]]] if known else list(names)


def _find_labels(features: Features, has_several: bool, source: str) -> str | None:
    """Return the column of labels: of class numbers, else of texts or numbers with a usual name; None without one."""

    def is_one(feature: Feature, kind: str) -> bool:
        return feature.kind == kind and (kind == CLASS or feature.is_whole or feature.is_text or feature.is_real)

    def is_list(feature: Feature, kind: str) -> bool:
        return feature.kind == LIST and feature.item is not None and is_one(feature.item, kind)

    fits: tuple[Callable[[Feature, str], bool], ...] = (is_list, is_one) if has_several else (is_one, is_list)
    for kind in (CLASS, VALUE):
        for fit in fits:
            found = [name for name, feature in features.items() if fit(feature, kind)]
            if kind == VALUE:
                found = list(filter(roles.LABEL_IN_ROW.has, found))
            found = _prefer(found, roles.LABEL_IN_ROW)
            if len(found) > 1:
                raise UserError(
                    f"{source}: labels in several columns, {shorten(', '.join(found), 120)}; choose one with "
                    "DATA.TABLE.LABELS [NAME]"
                )
            if found:
                return found[0]
    return None


def _find_map(features: Features, choices: HubChoices) -> tuple[str, str] | None:
    """Return the columns of images and of their label maps; None unless there are two that differ in name."""
    images, order = _images(features), [roles.IMAGE_IN_ROW, roles.LABEL_MAP]
    chosen = dict(zip(order, (choices.image, choices.labels[0] if choices.labels else None)))
    if len(images) == 2 and not any(map(roles.IMAGE_IN_ROW.has, images)):
        order.reverse()
    for role in order:
        found = _prefer([name for name in images if name not in chosen.values()], role)
        if chosen[role] is None and len(found) == 1:
            chosen[role] = found[0]
    image, label_map = chosen.values()
    return None if image is None or label_map is None else (image, label_map)


def _fields(feature: Feature) -> Features:
    """Return the types of the parts of objects: the fields of a struct of lists, or of the structs of a list."""
    if feature.kind == LIST and feature.item is not None and feature.item.kind == STRUCT:
        return {name: Feature(LIST, item=field) for name, field in feature.item.fields.items()}
    return feature.fields if feature.kind == STRUCT else {}


def _find_box(fields: Features) -> tuple[str, str] | None:
    """Return the field of boxes, lists of lists of numbers, and how these are written, by its name."""
    names = [name for name, feature in fields.items() if _is_boxes(feature)]
    return next(((names[at], form) for form, role in roles.BOXES.items() for at in role.find_all(names)), None)


def _is_boxes(feature: Feature) -> bool:
    item = feature.item.item if feature.kind == LIST and feature.item is not None else None
    return item is not None and item.kind == VALUE and (item.is_real or item.dtype.startswith(("int", "uint")))


def _list_objects(features: Features) -> list[str]:
    """Return the columns of objects with boxes; "" for boxes that are a column themselves."""
    found = [name for name, feature in features.items() if _find_box(_fields(feature)) is not None]
    return found or ([""] if _find_box(features) is not None else [])


def _find_objects(features: Features, choices: HubChoices, source: str) -> ObjectColumns:
    parents = list(dict.fromkeys(find_column(name, features)[0] for name in choices.labels)) or _list_objects(features)
    if parents and _find_box(_fields(features[parents[0]]) if parents[0] else features) is None:
        if choices.labels and _find_box(features) is not None:  # it names the classes of boxes in another column
            parents = [""]
        else:
            raise UserError(f"{source}, column {parents[0]} (DATA.TABLE.LABELS): no boxes in it, such as a field bbox")
    found = _prefer(parents, roles.OBJECTS)
    if len(found) != 1:
        what = f"boxes in several columns, {', '.join(found)}" if found else f"no column of boxes: {_show(features)}"
        raise UserError(f"{source}: {shorten(what, 200)}; choose one with DATA.TABLE.LABELS [NAME]")
    parent = found[0]
    fields = _fields(features[parent]) if parent else features
    box, form = _find_box(fields) or ("", "")
    others = [name for name in fields if name != box and (parent or fields[name].kind == LIST)]
    parts = {part: _find(role, others) for part, role in _PARTS.items()}
    if not parent and choices.labels:
        parts["label"] = choices.labels[0]
    label = fields[parts["label"]].item if parts["label"] else None
    whole = [name for name, feature in features.items() if feature.is_whole]
    sizes = {"height": _find(roles.HEIGHT, whole), "width": _find(roles.WIDTH, whole)}
    names = label.names if label is not None else None
    return ObjectColumns(parent, box, form, **parts, names=names, **sizes, image_id=_find(roles.ID_OF_IMAGE, whole))


def _find(role: roles.Role, names: Sequence[str]) -> str:
    known = role.find_all(names)
    return names[known[0]] if known else ""
