"""The index in a folder of tar files, for runs that read them from an address (``prepare index``)."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file, os_errors_as_user_errors
from ...core.runtime.json_format import format_json
from ..data.formats import SPLIT_WORDS
from ..data.remote_tars import INDEX_FILE, PublishedIndex, SplitFiles
from ..data.tar import TarImages
from ..data.tar_files import LocalTars


def publish_index(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Write ``tar-index.json`` and each split's index to the folder of uncompressed tar files, replacing older ones.

    Yields split, number of images and number of tar files, once the split is indexed.

    Raises:
        UserError: there are no tar files, one is damaged, or the folder is not writable.
    """
    tars, splits = LocalTars(str(folder)), {}
    found = {subset: shards for subset in SPLIT_WORDS if (shards := tars.find(subset))}
    if not found:
        raise UserError(f"{folder} has no tar files such as train-00000.tar or val-00000.tar")
    with os_errors_as_user_errors(folder), tempfile.TemporaryDirectory(dir=folder, prefix=".index-") as cache:
        for split, shards in found.items():
            dataset = TarImages(str(folder), split, Path(cache))
            names = [os.path.basename(file) for file in dataset.index_files]
            sizes = {shard: os.path.getsize(folder / shard) for shard in shards}
            splits[split] = SplitFiles(names[0], names[1], dataset.content_key, sizes)
            yield split, len(dataset), len(shards)
        written = {file for files in splits.values() for file in (files.index, files.locations)}
        for name in sorted(written):
            os.replace(Path(cache, name), folder / name)
        content = format_json(msgspec.to_builtins(PublishedIndex(1, splits)), indent=1) + "\n"
        with atomic_file(folder / INDEX_FILE) as out:
            out.write(content.encode("ascii"))
        for path in (*folder.glob("tar-*.index"), *folder.glob("tar-*.npy")):
            if path.name not in written:  # of tar files that have changed since
                path.unlink()
