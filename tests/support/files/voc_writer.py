"""Pascal VOC's annotations and lists, with images."""

from support.files.coco_writer import write_image


def an_object(name="dog", box=(3, 4, 12, 13), more=""):
    sides = "".join(f"<{side}>{value}</{side}>" for side, value in zip(("xmin", "ymin", "xmax", "ymax"), box))
    return f"<object><name>{name}</name>{more}<bndbox>{sides}</bndbox></object>"


def write_xml(path, *objects, name="", size=(20, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    height_width = f"<size><width>{size[1]}</width><height>{size[0]}</height></size>" if size else ""
    path.write_text(
        f"<annotation><filename>{name}</filename>{height_width}{''.join(objects)}</annotation>", encoding="utf-8"
    )


def write_voc(folder, lists, suffix=".png", images="JPEGImages", annotations="Annotations", objects=None):
    for number, stem in enumerate(sorted({stem for stems in lists.values() for stem in stems})):
        write_image(folder / images / f"{stem}{suffix}", 20, 30, number)
        write_xml(folder / annotations / f"{stem}.xml", *(objects or {}).get(stem, [an_object()]))
    for split, stems in lists.items():
        (folder / "ImageSets" / "Main").mkdir(parents=True, exist_ok=True)
        (folder / "ImageSets" / "Main" / f"{split}.txt").write_text("".join(f"{stem}\n" for stem in stems))
