"""The parts of a training are built from the configuration: each callee gets its own settings."""

import numpy as np
import paddle
import pytest
from paddle import nn
from support.forced_device import forced_device
from support.refusals import refusal_of
from support.thread_ranks import acting_as

from paddlevit_dist import UserError, create_model
from paddlevit_dist.core.data.sampler import TrainingSampler
from paddlevit_dist.core.engine.nan_guard import SCALER_SKIPS
from paddlevit_dist.core.engine.training_state import LEAST_UPDATES, build_sampler, build_training_state
from paddlevit_dist.core.runtime import device_graph
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.core.tasks.protocols import ParameterGrouping, Recomputable
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.core.tasks.task import Task
from paddlevit_dist.images.models.layers import Linear


class Small(Model):
    """Two layers, a token without weight decay, and a batch norm."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 2), nn.Linear(2, 3)
        self.token = self.create_parameter([2, 3])
        self.norm = nn.BatchNorm1D(3)

    def no_weight_decay(self):
        return {"token"}

    def layer_groups(self):
        names = [name for name, _ in self.named_parameters()]
        parts = (("first",), ("token", "norm"), ("second",))
        return [[name for name in names if name.partition(".")[0] in part] for part in parts]


SAMPLES, BATCH = 40, 4
WORDS = [
    f"-batch_size={BATCH}",
    "-epochs=5",
    "TRAIN.ACCUM_ITER",
    "2",
    "TRAIN.WARMUP_EPOCHS",
    "0",
]  # 5 updates per epoch


def config_of(*words):
    return load([*WORDS, *words]).values


def build(*words, model=None, task=None, **options):
    config, printed = config_of(*words), []
    sampler = build_sampler(config, range(SAMPLES))
    task = task or Task(config)
    state = build_training_state(config, task, model or Small(), sampler, printed.append, **options)
    return state, printed


def update(state, gradient):
    """Make an update at the rate 1 with this gradient of each value; return how each weight has changed."""
    before = {name: value.numpy().copy() for name, value in state.model.named_parameters()}
    sum((value * gradient).sum() for value in state.model.parameters()).backward()
    state.optimizer.set_lr(1.0)
    state.optimizer.step()
    state.optimizer.clear_grad()
    return {name: value.numpy() - before[name] for name, value in state.model.named_parameters()}


def test_the_optimizer_decays_weights_by_their_layers():
    state, printed = build("TRAIN.OPTIMIZER.NAME=AdamW", "TRAIN.WEIGHT_DECAY", "0.03", "TRAIN.LAYER_DECAY", "0.7")
    weights = {name: value.numpy().copy() for name, value in state.model.named_parameters()}
    changes, factors = update(state, 0.0), {"first.weight": 0.03 * 0.7**2, "second.weight": 0.03}
    for name, change in changes.items():
        np.testing.assert_allclose(change, -factors.get(name, 0.0) * weights[name], rtol=1e-3, atol=1e-7, err_msg=name)
    assert state.undecayed == ["token"] and printed == [] and state.shards is None
    assert state.schedule.total_updates == 25 and state.optimizer.decay_factor is None


class Grouped(Task, ParameterGrouping):
    def parameter_groups(self, model):
        names = [name for name, _ in model.named_parameters()]
        slow = [name for name in names if not name.startswith("second.")]
        rest = [name for name in names if name not in slow]
        return [{"names": slow, "learning_rate": lambda step: None if step.epoch < 3 else 0.1}, {"names": rest}]


def test_a_rate_thaws_what_the_network_froze_but_no_statistics_and_nothing_that_a_key_froze():
    model = Small()
    for parameter in (*model.first.parameters(), *model.norm.parameters()):
        parameter.stop_gradient = True
    model.norm._use_global_stats = True
    words = "TRAIN.FREEZE", "[token]", "TRAIN.LAYER_DECAY", "0.7"
    state, _ = build(*words, model=model, task=Grouped(config_of(*words)))
    assert state.rates.can_freeze
    learning = {name for name, parameter in model.named_parameters() if not parameter.stop_gradient}
    expected = {"first.weight", "first.bias", "second.weight", "second.bias", "norm.weight", "norm.bias"}
    assert learning == expected
    assert state.optimizer.foreach_step() is not None  # lists the moments
    assert {name.partition("/")[2] for name in state.optimizer_state.tensors()} == expected
    assert not build(*words)[0].rates.can_freeze
    message = refusal_of(build, "TO_STATIC", "True", task=Grouped(config_of()))
    assert message.startswith("TO_STATIC") and "parameter_groups" in message


def test_average_guard_and_precision_get_their_settings():
    words = ["TRAIN.MODEL_EMA", "True", "TRAIN.MODEL_EMA_DECAY", "0.9", "TRAIN.MODEL_EMA_WARMUP", "17"]
    words += ["TRAIN.MAX_SKIPPED_UPDATES", "2", "AMP_DTYPE", "bfloat16", "AMP_LEVEL", "O2"]
    state, printed = build(*words, explain_not_finite=[lambda *words: ["a line"]])
    state.schedule.load_state_dict({"update": 9})
    weight = state.model.first.weight
    before = weight.numpy().copy()
    weight.set_value(weight + 1.0)
    state.ema.update()
    share = 1 - 0.9 * (1 - np.exp(-10 / 17))
    np.testing.assert_allclose(state.ema.state_dict()["first.weight"].numpy(), before + share, rtol=1e-5)
    step = StepPosition(1, 0, 25)
    state.nan_guard.count(False, step)
    with pytest.raises(UserError, match="a line$"):
        state.nan_guard.count(False, step)
    assert len(printed) == 2 and printed[1] == "a line"
    assert not state.precision.enabled and state.precision.notice == ""
    assert (state.precision.options["dtype"], state.precision.options["level"]) == ("bfloat16", "O2")
    with forced_device():
        state, _ = build("-amp", "AMP_DTYPE", "float16", model=nn.Linear(2, 2))
    assert state.precision.enabled and state.nan_guard.limit == config_of().TRAIN.MAX_SKIPPED_UPDATES + SCALER_SKIPS


def test_without_weight_decay_or_average_there_is_none():
    state, _ = build("TRAIN.WEIGHT_DECAY", "0.0", "TRAIN.MODEL_EMA", "False")
    assert state.ema is None and state.undecayed == []
    assert state.nan_guard.limit == config_of().TRAIN.MAX_SKIPPED_UPDATES


def test_a_momentum_that_warms_up_follows_the_schedule():
    words = ["TRAIN.OPTIMIZER.NAME", "SGD", "TRAIN.OPTIMIZER.MOMENTUM", "0.9", "TRAIN.OPTIMIZER.WARMUP_MOMENTUM", "0.5"]
    state, _ = build(*words, "TRAIN.WARMUP_STEPS", "8", "TRAIN.WEIGHT_DECAY", "0.0")
    assert state.schedule.momentum(0.5, 0.9) == pytest.approx(0.5, abs=0.06)
    update(state, 1.0)
    state.schedule.load_state_dict({"update": 4})
    momentum = state.schedule.momentum(0.5, 0.9)
    changes = update(state, 1.0)
    assert 0.6 < momentum < 0.9
    np.testing.assert_allclose(changes["first.weight"], -1 - momentum, rtol=1e-5)


def test_a_weight_decay_that_moves_follows_the_schedule():
    state, _ = build("TRAIN.WEIGHT_DECAY", "0.04", "TRAIN.WEIGHT_DECAY_END", "0.4")
    assert state.optimizer.decay_factor() == pytest.approx(1.0)
    state.schedule.load_state_dict({"update": 25})
    assert state.optimizer.decay_factor() == pytest.approx(10.0)


@pytest.mark.parametrize("steps, is_refused", [(24, False), (25, True), (26, True)])
def test_a_warmup_has_to_end_before_the_run(steps, is_refused):
    if not is_refused:
        assert build("TRAIN.WARMUP_STEPS", str(steps))[0].schedule.warmup_updates == steps
        return
    assert refusal_of(build, "TRAIN.WARMUP_STEPS", str(steps)) == (
        f"the warm-up ({steps} updates, TRAIN.WARMUP_STEPS or WARMUP_EPOCHS) is as long as the run (25 updates); "
        "shorten it or train longer"
    )


def test_a_position_moves_sampler_and_schedule_together():
    state, _ = build()
    state.begin_after(2)
    assert state.position() == {"epoch": 2, "consumed": 0, "update": 10}
    state.begin_after(3, 16)
    assert state.position() == {"epoch": 3, "consumed": 16, "update": 17}
    assert state.optimizer_state.state_dict() is not None


@acting_as(2, 5)
def test_a_sampler_gets_the_split_of_this_rank():
    config = config_of("SEED", "13", "TRAIN.REPEATED_AUGMENT", "3")
    sampler = build_sampler(config, range(200))
    expected = TrainingSampler(range(200), BATCH, rank=2, world_size=5, accumulation_steps=2, seed=13, repeats=3)
    assert [list(batch) for batch in sampler] == [list(batch) for batch in expected]
    assert (sampler.global_batch_size, sampler.updates_per_epoch) == (40, 5)


class RecomputedTask(Task, Recomputable):
    """Lists the layers that are recomputed."""

    def recomputed_layers(self, model):
        return [model.first, model.second]


def test_frozen_and_recomputed_layers_are_counted():
    words = ["TRAIN.FREEZE", "['first.*','norm.*']"]
    frozen = "4 parameters are frozen (TRAIN.FREEZE first.*, norm.*)"
    kept = "1 batch norm without trained parameters keeps its running statistics"
    assert build(*words)[1] == [f"{frozen}; {kept}"]
    plain = Small()
    plain.norm = nn.Linear(3, 3)
    assert build(*words, model=plain)[1] == [frozen] and build()[1] == []
    still = Small()
    for parameter in still.norm.parameters():
        parameter.stop_gradient = True
    assert build(model=still)[1] == [kept]
    with pytest.raises(UserError, match="^TRAIN.RECOMPUTE: task .* cannot recompute; remove TRAIN.RECOMPUTE$"):
        build("TRAIN.RECOMPUTE", "True")
    printed = build("TRAIN.RECOMPUTE", "True", task=RecomputedTask(config_of()))[1]
    assert printed == ["2 blocks are recomputed in the backward pass (TRAIN.RECOMPUTE)"]


@pytest.mark.parametrize("number", [1, 2])
def test_sharding_needs_several_processes(number):
    printed = []
    config = config_of("TRAIN.SHARDING", "optimizer", "TRAIN.MODEL_EMA", "False")
    sampler = TrainingSampler(range(SAMPLES), BATCH, rank=0, world_size=number, seed=0)
    with acting_as(0, number):
        state = build_training_state(config, Task(config), nn.Linear(2, 2), sampler, printed.append)
    shared = "TRAIN.SHARDING: this process keeps the optimizer's state of 4 of 6 values"
    assert printed == ["TRAIN.SHARDING optimizer has no effect on one process" if number == 1 else shared]
    assert (state.shards is None) == (number == 1)


class CompiledTask(Task):
    traits = Task.traits.__class__(supports_to_static=True)


def test_a_line_of_the_compiler_is_logged():
    printed = build("TO_STATIC", "True", model=nn.Linear(2, 2), task=CompiledTask(config_of()))[1]
    assert printed == ["passes: compiled (TO_STATIC), once for each batch shape"]


def test_low_rank_terms_are_added_with_their_settings():
    words = ["TRAIN.LORA.RANK", "3", "TRAIN.LORA.ALPHA", "7.0", "TRAIN.LORA.TARGETS"]
    words += ["['fc2', 'fc1']", "-pretrained=x"]
    model = create_model("vit", num_classes=3, image_size=8, patch_size=4, embed_dim=8, depth=2, num_heads=2)
    state, printed = build(*words, model=model)
    layers = {name: layer for name, layer in state.model.named_sublayers() if hasattr(layer, "lora_scale")}
    assert list(layers) == [f"blocks.{number}.mlp.{name}" for number in range(2) for name in ("fc1", "fc2")]
    assert {(layer.lora_scale, layer.lora_a.shape[1]) for layer in layers.values()} == {(7.0 / 3, 3)}
    assert printed[0].startswith("LoRA: 4 layers have matrices of rank 3 ")


def test_low_rank_terms_are_equal_on_all_ranks_whatever_was_drawn_before():
    words = ["TRAIN.LORA.RANK", "3", "-pretrained=x"]
    factors = []
    for rank in (0, 1):
        paddle.seed(rank + 40)
        model = create_model("vit", num_classes=3, image_size=8, patch_size=4, embed_dim=8, depth=1, num_heads=2)
        with acting_as(rank, 2):
            state, _ = build(*words, model=model)
        factors.append({name: value.numpy() for name, value in state.model.state_dict().items() if "lora_" in name})
    assert any(value.any() for value in factors[0].values())
    for name, value in factors[0].items():
        np.testing.assert_array_equal(factors[1][name], value, err_msg=name)


class TwoProducts(Model):
    """Two products without biases, whose half-precision kernels no device is asked for."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Linear(6, 2, bias_attr=False), Linear(2, 3, bias_attr=False)


@pytest.mark.parametrize("key", [None, "TRAIN.RECOMPUTE", "TRAIN.FIND_UNUSED_PARAMETERS"])
def test_weights_are_cast_together_only_where_each_rank_uses_all_once(key):
    """With parameters that a rank does not use, two processes cast together got gradients on one of them only."""
    words = ["-amp", "AMP_DTYPE", "bfloat16", *([key, "True"] if key else [])]
    with forced_device():
        printed = build(*words, model=TwoProducts(), task=RecomputedTask(config_of()))[1]
    assert any(" are cast to half precision " in line for line in printed) == (key is None)


LONG = ("-epochs=60",)  # LEAST_UPDATES


@pytest.mark.parametrize(
    ("value", "words", "update", "stored", "ranks", "has_graphs", "expected"),
    [
        ("auto", LONG, 0, {}, 1, True, True),
        ("auto", ("-epochs=59",), 0, {}, 1, True, False),
        ("auto", LONG, 0, {}, 2, True, False),
        ("auto", LONG, 0, {}, 1, False, False),
        ("auto", LONG, 5, {}, 1, True, False),  # of a version that stored no choice
        ("auto", ("-epochs=59",), 5, {"a": True}, 1, True, True),
        ("auto", LONG, 5, {"a": False}, 1, True, False),
        ("auto", LONG, 5, {"a": True}, 1, False, False),
        (True, (), 0, {}, 2, False, True),
        (True, LONG, 5, {"a": False}, 1, True, True),
        (False, LONG, 5, {"a": True}, 1, True, False),
    ],
)
def test_what_makes_updates_faster_is_chosen_once_for_a_run(
    monkeypatch, value, words, update, stored, ranks, has_graphs, expected
):
    state, _ = build(*words)
    assert words != LONG or state.schedule.total_updates == LEAST_UPDATES
    state.schedule.load_state_dict({"update": update})
    state.choices.update(stored)
    monkeypatch.setattr(device_graph, "reason_against", lambda: "" if has_graphs else "only CUDA GPUs have graphs")
    with acting_as(0, ranks):
        assert state.choose("a", value) is expected
    assert state.choices == {"a": expected}
