"""Task: landmark detection in volumes with heatmaps."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ...core.runtime.errors import UserError
from ...core.tasks.class_names import require_unique
from ...core.tasks.dataset import TransformedDataset, dataset_class, is_training_split
from ...core.tasks.model_factory import create_configured
from ...core.tasks.network_checks import check_network
from ...core.tasks.prediction import CheckpointMeta
from ...core.tasks.sample_checks import require_finite
from ...core.tasks.step_types import EvaluationStep, LossTerm, StepPosition, TaskTraits
from ...core.tasks.task import Records, Task
from .. import sliding_window
from ..dataset import VolumeDataset
from ..geometry import VolumeGeometry, convert, find_spacing, require_same_spacing, require_spacing, round_spacing
from ..input_facts import VolumeInputFacts
from ..intensities import IntensityConfig
from ..nonzero import set_region
from ..samples import AugmentationConfig, VolumeSamples
from ..settings import LandmarkSettings, LandmarkVolumes
from ..unet3d import axis_options
from .heatmaps import HeatmapFactors, decode, gaussian_factors, is_known, radius_factors
from .losses import focal_loss, weighted_squared_error
from .metrics import LandmarkMetrics
from .mirroring import choose_pairs, mirror_order, note_missing_pairs
from .position_notes import find_absent, find_exchanged
from .results import LandmarkGroundTruth, LandmarkPrediction, LandmarkRecord

_NUM_FIRST = 4  # volumes whose landmarks are looked at before training
_MAPS = "heatmaps (crops, landmarks, depth, height, width)"
_RARE = -4.6  # initial logit for the focal loss, probability 0.01: otherwise almost-empty maps cost thousands at first


class LandmarkDetection(Task):
    """Task that trains and evaluates a network with one heatmap per landmark."""

    aspects = {
        "CheckpointMatching": ".checks:LandmarkMatching",
        "Drawable": ".figures:LandmarkDrawing",
        "Exportable": ".export:LandmarkExport",
        "LogContributor": ".checks:LandmarkLog",
        "Predictable": ".prediction:LandmarkPredictor",
        "Reportable": ".figures:LandmarkFigures",
    }
    config: LandmarkSettings
    best_metric = ("mre_mm", False)
    traits = TaskTraits(sample_name="volumes", batch_norm="sync", supports_capture=True, normalizer_names=("heatmap",))

    def __init__(self, config: LandmarkSettings) -> None:
        super().__init__(config)
        self.names: list[str] = []
        self.spacing: np.ndarray | None = None  # (depth, height, width), mm
        self.within: str | None = None  # region of z_score, see ``nonzero``
        self.cases: list[tuple[str, str]] = []  # evaluated volumes: name, convention of predictions

    def build_dataset(self, split: str, cache_folder: Path) -> VolumeSamples:
        """Open a split and return its samples."""
        volumes = self.config.VOLUMES
        dataset = dataset_class(self.config, VolumeDataset).open(self.config, split, cache_folder)
        self._load_dataset_meta(dataset)
        is_training = is_training_split(self.config, split)
        notices = [*dataset.notices, *set_region(self, dataset, self._intensities().kinds, is_training)]
        if not is_training:
            self.cases = list_cases(dataset)
        augmentation = AugmentationConfig.from_config(volumes)
        crop_size = volumes.CROP_SIZE if is_training else None
        mirrored: Sequence[int] = range(len(self.names))
        if is_training:
            notices += self._describe_first(dataset)
            pairs = choose_pairs(volumes.FLIP, volumes.MIRROR_PAIRS, self.names)
            notices += note_missing_pairs(volumes.FLIP, pairs, self.names)
            mirrored = mirror_order(self.names, pairs)
        return VolumeSamples(dataset, crop_size, augmentation, mirrored, self._intensities(), notices)

    def _describe_first(self, dataset: VolumeDataset) -> list[str]:
        """Return notes on the landmarks of the first volumes, if the dataset does not know all of them already."""
        if dataset.placed() is not None or not len(dataset):
            return []
        worlds = [dataset.world(index) for index in range(min(_NUM_FIRST, len(dataset)))]
        where = f"the first {len(worlds)} volumes of dataset {self.config.DATA.DATASET}"
        return [*find_absent(where, worlds, self.names), *find_exchanged(where, worlds, self.names)]

    def _load_dataset_meta(self, dataset: VolumeDataset) -> None:
        """Take channels and landmarks from a split, and raise ``UserError`` if it does not fit keys or weights."""
        spacing, names = find_spacing(self.config.DATA.DATASET, dataset), list(dataset.class_names)
        require_same_spacing(self.config.DATA.DATASET, self.spacing, spacing)
        require_unique(names, f"dataset {self.config.DATA.DATASET}: landmarks")
        num_classes = self.config.MODEL.NUM_CLASSES
        if num_classes is not None and num_classes != len(names):
            raise UserError(
                f"MODEL.NUM_CLASSES (-num_classes) is {num_classes}, but there are {len(names)} landmarks; "
                "remove it, or list the landmarks in VOLUMES.LANDMARKS"
            )
        self.spacing, self.names = spacing, names

    def _intensities(self) -> IntensityConfig:
        return IntensityConfig.from_config(self.config.VOLUMES, 1, self.within)

    def check_sample(self, sample: dict[str, np.ndarray]) -> None:
        """Check that all numbers but the landmarks are finite."""
        # Without points, where NaN marks a missing landmark.
        require_finite({name: value for name, value in sample.items() if name != "points"})

    def collate(self, samples: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Stack crops to a batch, or whole volumes, zero-padded to the largest, with shapes ``sizes`` (batch, 3)."""
        volumes = [sample["volume"] for sample in samples]
        batch = {name: np.stack([sample[name] for sample in samples]) for name in samples[0] if name != "volume"}
        sizes = np.array([each.shape[1:] for each in volumes], dtype=np.int64)
        if "index" in batch:
            batch["sizes"] = sizes
        largest = sizes.max(axis=0)
        batch["volume"] = np.zeros((len(volumes), 1, *largest), dtype=np.float32)
        for target, volume in zip(batch["volume"], volumes):
            target[:, : volume.shape[1], : volume.shape[2], : volume.shape[3]] = volume
        return batch

    def loss_normalizers(self, batch: dict[str, np.ndarray]) -> dict[str, int]:
        """Count the landmarks of a batch."""
        return {"heatmap": int(np.isfinite(batch["points"]).all(axis=-1).sum())}

    def signature(self, samples: TransformedDataset | None = None) -> dict[str, Any]:
        """Return orientation, voxel spacing, intensity scaling, and outputs' landmarks, or the number of samples."""
        if samples is not None:
            return super().signature(samples)
        scaling = self._intensities().about()
        window = scaling.pop("intensity_window")
        return {
            "orientation": "RAS",
            "spacing_mm": [round_spacing(length) for length in require_spacing(self.spacing).tolist()],
            "intensity_window": "percentiles" if window is None else window,
            **scaling,
            "landmarks": list(self.names),
        }

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Create the configured model."""
        volumes = self.config.VOLUMES
        # A custom model may accept neither.
        options: dict[str, Any] = {"norm": volumes.UNET_NORM, "activation": volumes.UNET_ACTIVATION}
        model = create_configured(
            self,
            num_classes=num_classes or len(self.names),
            width=volumes.UNET_WIDTH,
            depth=volumes.UNET_DEPTH,
            **{name: value for name, value in options.items() if value not in ("batch", "relu")},
            **axis_options(volumes),
        )
        if volumes.LOSS == "focal":
            model.head.bias.set_value(paddle.full_like(model.head.bias, _RARE))
        return model

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Compute the loss of a batch of crops."""
        points = batch["points"]  # (batch, landmarks, 3)
        network = check_network(model, _MAPS, len(self.names), keeps_size=True)
        maps = network(batch["volume"]).astype("float32")  # (batch, landmarks, depth, height, width)
        target = self.target(points, maps.shape[2:])
        if self.config.VOLUMES.LOSS == "focal":
            losses = focal_loss(maps, target, points)  # (batch, landmarks)
        else:
            losses = weighted_squared_error(maps, target, self.config.VOLUMES.PEAK_WEIGHT) / self.zero_map_cost()
        present = is_known(points).all(axis=-1).astype("float32")
        return {"heatmap": LossTerm((losses * present).sum(), present.sum())}

    def target(self, points: paddle.Tensor, shape: Sequence[int]) -> HeatmapFactors:
        """Compute the target heatmaps of positions (batch, landmarks, 3), as factors."""
        volumes = self.config.VOLUMES
        if volumes.HEATMAP == "radius":
            return radius_factors(points, shape, volumes.RADIUS)
        return gaussian_factors(points, shape, compute_sigma(self.config.VOLUMES, self.spacing).tolist())

    def zero_map_cost(self) -> float:
        """Compute the loss of a map of zeros for a landmark inside the crop.

        Dividing by it makes losses independent of deviation and size. The integral of a Gaussian's k-th power is (2 pi
        / k)^(3/2) times the product of its deviations.
        """
        weight = self.config.VOLUMES.PEAK_WEIGHT
        volume = float(np.prod(compute_sigma(self.config.VOLUMES, self.spacing)))
        return volume * (math.pi**1.5 + weight * (2 * math.pi / 3) ** 1.5)

    def build_metrics(self) -> LandmarkMetrics:
        """Create the metrics of an evaluation."""
        return LandmarkMetrics(self.names)

    def eval_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: EvaluationStep
    ) -> Records | None:
        """Predict a batch of volumes and add its errors to the metrics."""
        points = batch["points"].numpy().astype(np.float64)
        predictions = self.locate(model, batch)
        truths, records = [], []
        for prediction, true_voxels in zip(predictions, points):
            true = prediction.geometry.world(true_voxels)
            errors = np.linalg.norm(prediction.world - true, axis=-1)
            if (np.isnan(errors) & np.isfinite(true).all(axis=-1)).any():
                raise UserError("the network's outputs for a volume are not finite, so it cannot be scored")
            convention = self.cases[prediction.index][1]
            columns = [
                convert(prediction.world, convention),
                convert(true, convention),
                prediction.confidences[:, None],
            ]
            step.metrics.update(errors, np.concatenate(columns, axis=1), convention.upper())
            truths.append(LandmarkGroundTruth(errors, true_voxels))
            if step.keeps_records:
                records.append(LandmarkRecord(errors.astype(np.float32), prediction.voxels.astype(np.float32)))
        if step.writer is not None:
            step.writer.add(predictions, truths)
        return (lambda: records) if step.keeps_records else None

    def locate(self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor]) -> list[LandmarkPrediction]:
        """Find the landmarks in each volume of a batch."""
        results = []
        for number, index in enumerate(batch["index"].numpy().tolist()):
            depth, height, width = batch["sizes"][number].numpy().tolist()
            geometry = VolumeGeometry((depth, height, width), batch["affine"][number].numpy())
            volume = batch["volume"][number, :, :depth, :height, :width]  # without its padding
            results.append(LandmarkPrediction(index, geometry, *self.find(model, volume), volume[0]))
        return results

    def find(self, model: paddle.nn.Layer, volume: paddle.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return voxels (landmarks, 3) and confidences (landmarks,) in a volume (1, depth, height, width)."""
        volumes = self.config.VOLUMES
        maps = sliding_window.predict(
            self._compute_maps(model), volume, volumes.CROP_SIZE, volumes.OVERLAP, volumes.WINDOW_WEIGHTS
        )
        return decode(maps, volumes.DECODING, np.ceil(3 * compute_sigma(self.config.VOLUMES, self.spacing)).astype(int))

    def _compute_maps(self, model: paddle.nn.Layer) -> Callable[[paddle.Tensor], paddle.Tensor]:
        network = check_network(model, _MAPS, len(self.names), keeps_size=True)
        if self.config.VOLUMES.LOSS == "focal":
            return lambda windows: F.sigmoid(network(windows).astype("float32"))
        return lambda windows: network(windows).astype("float32")

    def load_meta(self, meta: CheckpointMeta) -> None:
        """Load names, spacing and input settings from the record of weights."""
        facts = meta.read_input(VolumeInputFacts)
        names, spacing = meta.class_names or facts.landmarks, self.config.VOLUMES.SPACING_MM or facts.spacing_mm
        if not names or not spacing:
            raise UserError(
                "the weights do not record their landmarks and spacing: pass the run's folder, or weights "
                "with their about.yaml"
            )
        self.names, self.spacing = list(names), np.array(spacing, dtype=np.float64)
        self.within = facts.z_score


def list_cases(dataset: VolumeDataset) -> list[tuple[str, str]]:
    """Return name and convention of predictions of each volume."""
    return [(dataset.case(index), dataset.convention(index)) for index in range(len(dataset))]


def compute_sigma(volumes: LandmarkVolumes, spacing: np.ndarray | None) -> np.ndarray:
    """Return the deviation of the heatmaps in voxels, (depth, height, width)."""
    if volumes.HEATMAP == "radius":
        return np.full(3, (2 * volumes.RADIUS + 1) / 6)
    return np.array(volumes.SIGMA_MM) / spacing
