"""Small data files with images, with the metadata that the library ``datasets`` writes."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

IMAGE = {"_type": "Image"}
NAMES = ("ant", "bee", "cow")


def classes(*names: str) -> dict[str, Any]:
    return {"_type": "ClassLabel", "names": list(names or NAMES)}


def picture(number: int, kind: str = "PNG", **options: Any) -> bytes:
    """An encoded image whose size and color tell its number."""
    out = io.BytesIO()
    Image.new("RGB", (10 + number, 7), (number, 200, 30)).save(out, kind, **options)
    return out.getvalue()


def images(numbers: Sequence[int | None], kind: Any = None) -> pa.Array:
    """A column of images, as the library stores them; None: no image."""
    rows = [None if each is None else {"bytes": picture(each), "path": f"{each}.png"} for each in numbers]
    return pa.array(rows, pa.struct({"bytes": kind or pa.binary(), "path": pa.string()}))


def make_table(columns: Mapping[str, Any], features: Mapping[str, Any] | None = None) -> pa.Table:
    table = pa.table(
        {name: column if isinstance(column, pa.Array) else pa.array(column) for name, column in columns.items()}
    )
    if features is None:
        return table
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def write_parquet(path: Path, columns: Mapping[str, Any], features: Any = None, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(make_table(columns, features), path, **options)
    return path


def write_arrow(path: Path, columns: Mapping[str, Any], features: Any = None, rows: int = 2, **options: Any) -> Path:
    """A stream with batches of some rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = make_table(columns, features)
    with pa.ipc.new_stream(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def write_saved(folder: Path, splits: Mapping[str, Mapping[str, Any]], features: Any = None) -> Path:
    """A folder as ``save_to_disk`` writes it."""
    for split, columns in splits.items():
        write_arrow(folder / split / "data-00000-of-00001.arrow", columns, features)
        (folder / split / "state.json").write_text('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
        (folder / split / "dataset_info.json").write_text(json.dumps({"features": features}))
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
    return folder
