"""The teacher, an average of the student, and the center of its outputs: state of a training run.

Source: M. Caron et al., Emerging Properties in Self-Supervised Vision Transformers, 2021, arXiv 2104.14294,
section 3.1.
"""

import math

import numpy as np
import paddle

from ....core.distributed import all_reduce_sum, host_barrier, world_size
from ....core.registry.extension_points import MOVE_TOWARD
from ....core.runtime import device_graph
from ....core.tasks.aspects import TaskAspect
from ....core.tasks.protocols import StateKeeping
from ....core.tasks.step_types import StepPosition
from ....core.tasks.task_state import TaskState, WeightAverage, require_same_shapes
from .losses import deviation, entropies, teacher_momentum
from .network import HEAD, DistillationNetwork
from .settings import SelfDistillationKeys

_LAST_LAYER = f"{HEAD}.last_layer."
# Nats that outputs of a step say of their images: at most 0.004 in runs that collapsed, 0.2 to 2.5 in those that learn.
_LEAST_INFORMATION = 0.005
_MOST_KEPT = 0.1  # of the teacher's first weights
_FITTING_STEPS = 10.0  # run length in updates of 1 / (1 - momentum): exp(-5) = 0.7 % of the first weights are kept
_LEAST_ROWS = 8  # fewer outputs in a step say little of their images
_UNIFORM = 0.95  # share of the largest entropy
# At first the center is not that of the outputs, and one output exceeds all others: until it holds 1 % of its start.
_SHARE_OF_START, _LATEST_UPDATE = 0.01, 500


class TeacherAverage(WeightAverage):
    """The teacher's weights, which follow the student's; its batch norms have their own statistics.

    Every rank has all of them, with TRAIN.SHARDING too, because each step needs the whole teacher: it is only saved in
    shares.

    Args:
        student, teacher: networks of one kind, whose tensors share no memory.
        owned: names of the float32 state that this rank saves; None: all.
        momentum: SELF_DISTILLATION.TEACHER_MOMENTUM.

    Attributes:
        kept: share of the teacher's weights that the next step keeps.
    """

    is_compared = False

    def __init__(
        self, student: paddle.nn.Layer, teacher: paddle.nn.Layer, owned: set[str] | None, momentum: float
    ) -> None:
        self.student, self.teacher, self._owned = student, teacher, owned
        self.kept, self._momentum = 1.0, momentum
        trained = {name: p for name, p in student.named_parameters() if not p.stop_gradient}
        for parameter in teacher.parameters():
            parameter.stop_gradient = True
        own = dict(teacher.named_parameters())
        self._pairs: dict[paddle.dtype, list[tuple[paddle.Tensor, paddle.Tensor]]] = {}
        for name, parameter in trained.items():
            self._pairs.setdefault(parameter.dtype, []).append((parameter, own[name]))
        # One pass over both on CPUs, where copies of all weights take a tenth of a step.
        self._move = MOVE_TOWARD.find()
        self.restart()

    @property
    def is_all_float32(self) -> bool:
        """Whether all trained parameters are float32."""
        return list(self._pairs) == [paddle.float32]

    @paddle.no_grad()
    def restart(self) -> None:
        """Give the teacher the student's weights and statistics."""
        state = self.teacher.state_dict()
        for name, tensor in self.student.state_dict().items():
            paddle.assign(tensor, output=state[name])

    @paddle.no_grad()
    def update(self, is_bad: paddle.Tensor | None = None) -> None:
        """Move the teacher's parameters toward the student's, unless ``is_bad``, bool (1,) on the device, is true."""
        for pairs in self._pairs.values():
            students, teachers = zip(*pairs)
            if is_bad is None and self._move is not None and self._move(teachers, students, 1.0 - self.kept):
                continue
            student, teacher = (paddle.concat([each.reshape([-1]) for each in side]) for side in (students, teachers))
            change = student.subtract_(teacher).scale_(1.0 - self.kept)  # (values,)
            if is_bad is not None:
                change = paddle.where(is_bad, paddle.zeros_like(change), change)
            parts = paddle.split(change, [parameter.size for _, parameter in pairs])
            for part, (_, parameter) in zip(parts, pairs):
                parameter.add_(part.reshape(parameter.shape))

    def describe_first_weights(self, updates: int) -> str:
        """Format that over a tenth of the teacher after ``updates`` steps is its first weights; else empty."""
        moved = (1.0 - self._momentum) * updates / 2  # the mean of half a cosine is a half
        if math.exp(-moved) <= _MOST_KEPT:
            return ""
        return (
            f"note: SELF_DISTILLATION.TEACHER_MOMENTUM {self._momentum:g} is too slow for {updates:,} update(s): "
            f"{math.exp(-moved):.0%} of the teacher, which is scored and used, will be what it starts from; "
            f"{max(0.0, 1 - _FITTING_STEPS / updates):.2g} fits"
        )

    @paddle.no_grad()
    def exchange(self) -> None:
        """Swap the weights and statistics of student and teacher."""
        state = self.teacher.state_dict()
        for name, tensor in self.student.state_dict().items():
            own = tensor.clone()
            paddle.assign(state[name], output=tensor)
            paddle.assign(own, output=state[name])

    def state_dict(self) -> dict[str, paddle.Tensor]:
        """Return the teacher's state; with shards, what this rank saves."""
        state = self.teacher.state_dict().items()
        return {name: t for name, t in state if self._owned is None or name in self._owned or t.dtype != paddle.float32}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Restore the state of all ranks. Raises ValueError if its names or shapes are not the teacher's."""
        own = self.teacher.state_dict()
        require_same_shapes("the teacher's weights do", own, state)
        for name, tensor in own.items():
            tensor.set_value(np.asarray(state[name]))


class DistillationState(TaskState):
    """The teacher, the center of its outputs over all processes, and how both change with each step.

    Args:
        keys: the keys of SELF_DISTILLATION.
        student, teacher: see ``TeacherAverage``.
        owned: see ``TeacherAverage``.

    Attributes:
        center: float32 or float64 (outputs,), the running mean of the teacher's outputs.
    """

    average: TeacherAverage

    def __init__(
        self,
        keys: SelfDistillationKeys,
        student: DistillationNetwork,
        teacher: DistillationNetwork,
        owned: set[str] | None = None,
    ) -> None:
        self.keys, self.teacher = keys, teacher
        self.average, self.layers = TeacherAverage(student, teacher, owned, keys.TEACHER_MOMENTUM), [teacher]
        teacher.train()  # its batch norms use the batch
        head = student.pretraining_head.last_layer
        self._last_layer = [p for name, p in student.named_parameters() if name.startswith(_LAST_LAYER)]
        self.center = paddle.zeros([head.weight_v.shape[0]], head.weight_v.dtype)
        # Sums over this rank's rows of a step: outputs, their probabilities, their entropies, ones. Passes add to them
        # on the device, as captured passes call no Python.
        self._sums = paddle.zeros([2 * self.center.shape[0] + 2], self.center.dtype)
        self._update = 0
        kept = keys.CENTER_MOMENTUM
        self._first_signs = min(_LATEST_UPDATE, math.log(_SHARE_OF_START) / math.log(kept)) if kept else 0.0
        self._epoch_signs: paddle.Tensor | None = None  # sums of entropy, information and steps, (3,)

    def tensors(self) -> dict[str, paddle.Tensor]:
        """Return the center."""
        return {"center": self.center}

    def restart(self) -> None:
        """Begin with a center of 0."""
        paddle.assign(paddle.zeros_like(self.center), output=self.center)

    @paddle.no_grad()
    def teach(self, images: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Compute features (rows, channels) and outputs (rows, outputs) of large views."""
        features = self.teacher(images)
        return features, self.teacher.pretraining_head(features)

    @paddle.no_grad()
    def collect(
        self, step: StepPosition, features: paddle.Tensor, outputs: paddle.Tensor, shares: paddle.Tensor
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Keep what a micro-batch adds to the center; return the entropies (rows,) and the deviation of features.

        Args:
            step: position of the micro-batch. The first one of a step, which may be computed again, begins anew.
            features: of the teacher, float (rows, channels).
            outputs: of the teacher, float32 (rows, outputs).
            shares: its probabilities, (rows, outputs).
        """
        begins = device_graph.enter_value(lambda now: paddle.full([1], now.micro == 0, "bool"), step)
        before = paddle.where(begins, paddle.zeros_like(self._sums), self._sums)
        entropy = entropies(shares)
        rows = paddle.full([1], outputs.shape[0], outputs.dtype)
        sums = paddle.concat([outputs.sum(axis=0), shares.sum(axis=0), entropy.sum().reshape([1]), rows])
        paddle.assign(before + sums, output=self._sums)
        return entropy, deviation(features.astype(outputs.dtype))

    def keeps_gradients(self, step: StepPosition) -> bool:
        """Return whether the last layer is not frozen."""
        return step.epoch > self.keys.FROZEN_EPOCHS

    def before_update(self, step: StepPosition) -> None:
        """Take the momentum of the step, and the gradients from the last layer while it is frozen."""
        self._update = step.update
        self.average.kept = teacher_momentum(self.keys.TEACHER_MOMENTUM, step.update, step.total_updates)
        if not self.keeps_gradients(step):
            for parameter in self._last_layer:
                parameter.clear_gradient(False)

    @paddle.no_grad()
    def update(self, is_bad: paddle.Tensor | None = None) -> None:
        """Move the center toward the mean of the outputs of all ranks and micro-batches. Every rank must call this."""
        number = self.center.shape[0]
        outputs, shares, entropy, rows = paddle.split(self._sums, [number, number, 1, 1])
        if world_size() > 1 and outputs.place.is_cpu_place():
            host_barrier()
        mean = all_reduce_sum(outputs) / (rows * world_size())
        change = (mean - self.center) * (1.0 - self.keys.CENTER_MOMENTUM)
        if is_bad is not None:
            change = paddle.where(is_bad, paddle.zeros_like(change), change)
        self.center.add_(change)
        if self._update < self._first_signs:
            return
        # The entropy of this rank's outputs in the step, and how much less it is than that of their mean.
        entropy = entropy / rows
        signs = paddle.concat([entropy, entropies(shares / rows) - entropy, paddle.ones_like(entropy)])
        is_void = rows < _LEAST_ROWS if is_bad is None else paddle.logical_or(rows < _LEAST_ROWS, is_bad)
        signs = paddle.where(is_void, paddle.zeros_like(signs), signs).astype("float32")
        self._epoch_signs = signs if self._epoch_signs is None else self._epoch_signs + signs

    def take_signs(self) -> tuple[float, float] | None:
        """Return this rank's mean entropy and information since the last call, which waits; None without a step.

        The information that outputs have of their image is the entropy of the mean output minus their own, in nats.
        """
        if self._epoch_signs is None:
            return None
        entropy, information, steps = self._epoch_signs.tolist()
        self._epoch_signs = None
        return (entropy / steps, information / steps) if steps else None

    def describe_collapse(self, signs: tuple[float, float]) -> str:
        """Format that the outputs say nothing of the images; empty if they do. ``signs``: entropy and information."""
        entropy, information = signs
        largest = math.log(self.center.shape[0])
        if not math.isfinite(entropy + information) or information > _LEAST_INFORMATION:
            return ""
        is_uniform = entropy > _UNIFORM * largest
        found = "uniform" if is_uniform else "the same for all images"
        change = (
            "lower SELF_DISTILLATION.TEACHER_TEMPERATURES or raise CENTER_MOMENTUM"
            if is_uniform
            else "lower TRAIN.BASE_LR or SELF_DISTILLATION.CENTER_MOMENTUM, or raise TEACHER_MOMENTUM"
        )
        return (
            f"warning: self-distillation has collapsed: the teacher's outputs are {found} (entropy {entropy:.3f} of at "
            f"most {largest:.3f}); {change}"
        )


class TeacherKeeping(TaskAspect, StateKeeping):
    """Builds the teacher of a training run.

    Attributes:
        state: the state of the training run; None before it is built.
    """

    state: DistillationState | None = None

    def build_state(self, model: paddle.nn.Layer, owned: set[str] | None) -> DistillationState:
        """Build a teacher without dropout, and the state."""
        teacher = self.task.create_teacher()
        layers = dict(teacher.named_sublayers())
        for name, layer in model.named_sublayers():
            if getattr(layer, "_use_global_stats", False):  # frozen: the teacher keeps these statistics, too
                layers[name]._use_global_stats = True
        self.state = DistillationState(self.task.config.SELF_DISTILLATION, model, teacher, owned)
        return self.state
