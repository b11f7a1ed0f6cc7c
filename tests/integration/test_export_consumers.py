"""Programs of a user who has the files of an export alone: they repeat ``predict`` by what the description says."""

import importlib.util
import itertools
import json
from pathlib import Path

import numpy as np
import paddle
import pytest
from PIL import Image, ImageOps
from support.processes import ROOT
from support.trainings.untrained import write_untrained_run

from paddlevit_dist import Predictor, UserError
from paddlevit_dist.extensions.export.command import run

MISSING = [name for name in ("paddle2onnx", "onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
MISSING += ["Paddle 3"] if paddle.__version__.startswith("2.") else []
needs_onnx = pytest.mark.skipif(bool(MISSING), reason=f"pip install '.[onnx]': no {', '.join(MISSING)}")


def open_export(out):
    """Return the description of an export, and a function of named inputs."""
    import onnxruntime

    about = json.loads(Path(f"{out}.about.yaml").read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(f"{out}.onnx")
    return about, lambda **inputs: session.run(None, inputs)


def normalize(pixels, steps):
    """Normalize pixels (height, width[, 3]) to (1, channels, height, width)."""
    pixels = np.asarray(pixels, np.float32).reshape(*np.shape(pixels)[:2], -1) / np.float32(steps["divide_by"])
    pixels = (pixels - np.float32(steps["subtract"])) / np.float32(steps["divide_by_deviation"])
    return pixels.transpose(2, 0, 1)[None].astype(np.float32)


def read_image(file, steps):
    """Resize and normalize an image whose sides become those of the input."""
    image = Image.open(file)
    image = ImageOps.exif_transpose(image) if "upright" in steps else image
    kind = Image.Resampling[steps["interpolation"].split(",")[0].upper()]
    height, width = steps["resize"]
    return normalize(image.convert(steps["mode"]).resize((width, height), kind), steps), image.size


def find_labels(out, file):
    about, compute = open_export(out)
    inputs, _ = read_image(file, about["preprocessing"])
    shares = 1 / (1 + np.exp(-compute(images=inputs)[0][0].astype(np.float64)))
    thresholds = [about.get("thresholds", {}).get(name, about["threshold"]) for name in about["classes"]]
    chosen = [name for name, share, least in zip(about["classes"], shares, thresholds) if share > least]
    return [{"labels": ";".join(chosen), **dict(zip(about["classes"], shares))}]


def resize_maps(maps, size):
    """Resize (classes, rows, columns) bilinearly between the centers of pixels."""
    for axis, length in enumerate(size, start=1):
        places = np.clip((np.arange(length) + 0.5) * maps.shape[axis] / length - 0.5, 0, maps.shape[axis] - 1)
        first = np.minimum(places.astype(int), maps.shape[axis] - 2)
        share = (places - first).reshape([-1 if other == axis else 1 for other in range(3)])
        maps = maps.take(first, axis) * (1 - share) + maps.take(first + 1, axis) * share
    return maps


def share_classes(out, file):
    about, compute = open_export(out)
    pixels = normalize(Image.open(file).convert("RGB"), about["preprocessing"])
    size, window = pixels.shape[2:], about["windows"]
    total, counts = np.zeros((len(about["classes"]), *size)), np.zeros(size)
    starts = [
        sorted({min(start, side - length) for start in range(0, side - length + step, step)})
        for side, length, step in zip(size, window["size"], window["stride"])
    ]
    for top, left in itertools.product(*starts):
        rows, columns = slice(top, top + window["size"][0]), slice(left, left + window["size"][1])
        total[:, rows, columns] += resize_maps(compute(images=pixels[:, :, rows, columns])[0][0], window["size"])
        counts[rows, columns] += 1
    shares = np.bincount((total / counts).argmax(axis=0).ravel(), minlength=len(about["classes"])) / counts.size
    return [{f"share {name}": share for name, share in zip(about["classes"], shares)}]


def detect_points(out, file):
    about, compute = open_export(out)
    inputs, size = read_image(file, about["preprocessing"])
    results = compute(images=inputs, orig_target_sizes=np.array([size]))
    rows = []
    for score, label, points in zip(*(part[0] for part in results)):
        names = about["class_points"][about["classes"][label]]
        row = {"category": about["classes"][label], "score": score}
        for name, (x, y) in zip(names, points):
            row |= {f"{name} x": x, f"{name} y": y}
        rows.append(row)
    return rows


def place_point(heatmap, decoding):
    """Return x and y in cells, and the score."""
    row, column = np.unravel_index(heatmap.argmax(), heatmap.shape)
    if not heatmap[row, column] > 0:
        return column, row, 0.0
    half = decoding["kernel"] // 2
    weights = np.exp(-((np.arange(-half, half + 1) / decoding["deviation"]) ** 2) / 2)
    smooth = np.pad(heatmap.astype(float), half, mode="symmetric")
    for axis in (0, 1):
        smooth = np.apply_along_axis(np.convolve, axis, smooth, weights / weights.sum(), mode="valid")
    logs = np.pad(np.log(np.clip(smooth, *decoding["limits"])), 1, mode="edge")[row : row + 3, column : column + 3]
    (a, b, c), (d, e, f), (g, h, i) = logs
    xy = (i - f - h + 2 * e - d - b + a) / 2
    little = decoding["epsilon"]
    step = -np.linalg.inv([[f - 2 * e + d + little, xy], [xy, h - 2 * e + b + little]]) @ [(f - d) / 2, (h - b) / 2]
    fits = abs(step[0]) < heatmap.shape[1] and abs(step[1]) < heatmap.shape[0]
    return *((column, row) + step * fits), max(heatmap[row, column], 0.0)


def find_points(out, file):
    """Find the points of an object that fills the image."""
    about, compute = open_export(out)
    image, (height, width) = np.asarray(Image.open(file).convert("RGB"), float), about["preprocessing"]["resize"]
    scale = float(about["crop"].split(" by ")[1].split(";")[0])
    across = max(image.shape[1], image.shape[0] * width / height) * scale
    region = np.array([across, across * height / width])
    corner = np.array(image.shape[1::-1]) / 2 - region / 2
    x, y = (corner[k] + region[k] * np.arange(n) / (n - 1) for k, n in enumerate((width, height)))
    crop = cut_bilinear(image, x, y)
    maps = compute(images=normalize(np.floor(crop + 0.5), about["preprocessing"]))[0][0]
    if "mean_with_mirrored" in about:
        mirrored = compute(images=normalize(np.floor(crop[:, ::-1] + 0.5), about["preprocessing"]))[0][0]
        maps = (maps + mirrored[about["mean_with_mirrored"]["heatmaps"], :, ::-1]) / 2
    objects, least = [], float(about["decoding"]["object"].split("above ")[1].split(";")[0])
    for category, heatmaps in about["heatmaps_of_classes"].items():
        points = [place_point(maps[number], about["decoding"]) for number in heatmaps]
        scores = [score for _, _, score in points if score > least]
        row = {"category": category, "score": np.mean(scores) if scores else 0.0}
        for name, (i, j, score) in zip([about["points"][number] for number in heatmaps], points):
            place = corner + region * (i, j) / (np.array(maps.shape[:0:-1]) - 1)
            row |= {f"{name.split(': ')[-1]} {what}": value for what, value in zip("xy", place)}
            row[f"{name.split(': ')[-1]} score"] = score
        objects.append(row)
    return [max(objects, key=lambda row: row["score"])]


def cut_bilinear(image, x, y):
    """Return the levels of (rows, columns, 3) at columns x and rows y, black outside."""
    padded = np.pad(image, ((1, 2), (1, 2), (0, 0)))
    for axis, places in enumerate((y, x)):
        places = np.clip(places, -1, image.shape[axis]) + 1
        first = np.floor(places).astype(int)
        share = (places - first).reshape(-1, *(1,) * (2 - axis))
        padded = padded.take(first, axis) * (1 - share) + padded.take(first + 1, axis) * share
    return padded


def measure_classes(out, file):
    """Measure the milliliters of classes in a volume that has the network's spacing."""
    import nibabel

    about, compute = open_export(out)
    steps, image = about["preprocessing"], nibabel.load(file)
    volume = np.asarray(image.dataobj, np.float32).T  # of x, y, z to the right, to the front, up
    assert np.allclose(image.header.get_zooms()[::-1], steps["spacing_mm"]) and steps["normalize"] == ["ct"]
    low, high = steps["intensity_window"]
    volume = (volume.clip(low, high) - (low + high) / 2) / ((high - low) / 2)
    windows, starts, weight = steps["windows"], [], np.ones(1)
    for length, window in zip(volume.shape, windows):
        number = int(np.ceil((length - window) / max(1, int(window * (1 - steps["overlap"]))))) + 1
        starts.append([round(k * (length - window) / max(number - 1, 1)) for k in range(number)])
        weight = weight[..., None] * np.exp(-32 * ((np.arange(window) - (window - 1) / 2) / window) ** 2)
    total, weights = np.zeros((len(about["classes"]), *volume.shape)), np.zeros(volume.shape)
    for corner in itertools.product(*starts):
        part = tuple(slice(start, start + window) for start, window in zip(corner, windows))
        total[(slice(None), *part)] += compute(volume=volume[part][None, None].astype(np.float32))[0][0] * weight[0]
        weights[part] += weight[0]
    labels = (total / weights).argmax(axis=0)
    ml = np.prod(steps["spacing_mm"]) / 1000
    return [{f"ml {name}": (labels == k).sum() * ml for k, name in enumerate(about["classes"]) if k}]


SHAPES = ["DATA.SHAPES.TRAIN", "4", "DATA.SHAPES.VAL", "2"]
CONSUMERS = {
    "multi_digits": (find_labels, ["MODEL.DIMS", "[8, 8, 8]"], 1.0, {}),
    "segformer_b0_shapes": (share_classes, [*SHAPES, "SEGMENTATION.PROTOCOL", "slide", "MODEL.DROPOUT", "0"], 1.0, {}),
    "detrpose_figures": (detect_points, [*SHAPES, "MODEL.NUM_QUERIES", "6"], 0.1, {"least_score": 0.0}),
    "heatmap_figures": (find_points, [*SHAPES, "HEATMAPS.CROP_SIZE", "[48, 32]", "MODEL.DIMS", "[8, 8, 8]"], 100.0, {}),
    "volume_unet3d_phantoms": (
        measure_classes,
        ["VOLUMES.CROP_SIZE", "[16, 24, 16]", "VOLUMES.UNET_WIDTH", "4"],
        1.0,
        {},
    ),
}


@needs_onnx
@pytest.mark.parametrize("name", CONSUMERS)
def test_a_program_repeats_a_prediction_by_the_description_alone(name, tmp_path):
    """Of a classifier and of a detector, it is the page's: see test_onnx_export.py and test_exported_detectors.py."""
    consume, words, spread, options = CONSUMERS[name]
    weights = write_untrained_run(tmp_path / "run", [f"-cfg={ROOT / 'configs' / name}.yaml", *words])
    state = paddle.load(str(weights))
    last = [key for key, value in state.items() if value.ndim > 1][-1]
    paddle.seed(1)
    state[last] = paddle.randn(state[last].shape) * spread
    paddle.save(state, str(weights))
    file = write_input(tmp_path, is_volume=consume is measure_classes)
    expected = Predictor(str(weights), **options)([file])
    run([str(weights), str(tmp_path / "out" / "net"), "-format=onnx"])
    for row, other in zip(Predictor(tmp_path / "out" / "net.onnx", **options)([file]), expected, strict=True):
        numbers = {key: each for key, each in other.items() if isinstance(each, float)}
        assert row == {**other, **{key: pytest.approx(each, abs=0.02, rel=2e-3) for key, each in numbers.items()}}
    found = consume(str(tmp_path / "out" / "net"), file)
    assert len(found) == len(expected)
    for row, other in zip(found, expected, strict=True):
        for key, value in row.items():
            assert other[key] == (value if isinstance(value, str) else pytest.approx(value, abs=0.02, rel=2e-3)), key
    assert len({str(value) for row in expected for value in row.values()}) > 3  # not the same answer everywhere


def write_input(folder, is_volume: bool) -> str:
    grid = np.mgrid[0:80, 0:100]
    if not is_volume:
        colors = np.stack([grid[0] * 3, grid[1] * 2, (grid[0] * grid[1]) % 256], axis=-1).astype(np.uint8)
        Image.fromarray(colors).save(folder / "image.png")
        return str(folder / "image.png")
    import nibabel

    z, y, x = np.mgrid[0:20, 0:30, 0:27]
    voxels = (12.0 * ((z - 9) ** 2 + (y - 14) ** 2 + (x - 11) ** 2) - 300).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(voxels.T, np.diag([*SPACING[::-1], 1])), folder / "volume.nii")
    return str(folder / "volume.nii")


SPACING = (4.0, 3.0, 3.0)  # of the phantoms, mm along z, y, x


NOT_EXPORTED = {
    "mae_digits": "^export: task masked_autoencoder does not support it",
    "dino_digits": "^export: task .* does not support it",
    "minkunet14_synthetic_rooms": "^export: minkunet14a is a sparse network",
    "ptv3_synthetic_rooms": "^export: ptv3 is a sparse network",
    "pointgroup_synthetic_rooms": "^export: pointgroup is a sparse network",
}


@pytest.mark.parametrize("name", NOT_EXPORTED)
def test_what_is_not_exported_is_refused_in_one_line(name, tmp_path):
    weights = write_untrained_run(tmp_path / "run", [f"-cfg={ROOT / 'configs' / name}.yaml"])
    with pytest.raises(UserError, match=NOT_EXPORTED[name]):
        run([str(weights), str(tmp_path / "out")])
