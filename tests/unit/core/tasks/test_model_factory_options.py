"""Options of a network in a run: MODEL.OPTIONS, keys that the network declares, and what a task sets itself."""

import errno
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from paddle import nn
from support.refusals import refusal_of
from support.registrations import forgotten

from paddlevit_dist import Key, UserError
from paddlevit_dist.core.registry.register import register_model, register_task
from paddlevit_dist.core.runtime.errors import OwnCodeError
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks import Model, Task, create_configured
from paddlevit_dist.core.tasks.model_factory import build_model, create_model
from paddlevit_dist.core.tasks.task_factory import make_task


class Own(Model):
    """Keeps its arguments."""

    variants = {"own": {"widths": (8, 16)}}

    def __init__(self, num_classes=10, in_channels=1, widths=(4,), pool="average", rules=None):
        super().__init__()
        self.arguments = {"in_channels": in_channels, "widths": widths, "pool": pool, "rules": rules}
        self.head = nn.Linear(2, num_classes)

    def forward(self, rows):
        return self.head(rows)


class Passing(Own):
    """Passes what it does not know on."""

    def __init__(self, depth=3, **options):
        super().__init__(**options)
        self.arguments["depth"] = depth


class Open(Model):
    """Reads names of its own."""

    def __init__(self, num_classes=10, **settings):
        super().__init__()
        self.arguments = settings

    def forward(self, rows):
        return rows


class Swallowing(Own):
    """Ignores what it does not know, such as channels."""

    def __init__(self, depth=3, **_):
        super().__init__(in_channels=7)
        self.arguments["depth"] = depth


class Listing(Open):
    """Lists the names that it reads."""

    @classmethod
    def options(cls):
        """Return them."""
        return {"width": 8}


class Narrow(Model):
    """Has no options."""

    def __init__(self, num_classes=10):
        super().__init__()

    def forward(self, rows):
        return rows


class PassingToNarrow(Narrow):
    """Passes on what its parent does not take."""

    def __init__(self, **options):
        super().__init__(**options)


class Declaring(Own):
    """Has a key of its own."""

    keys = [Key("MODEL.OWN.POOL", "token", "text", "how features are combined", optional=True)]


NETWORKS = {"own": Own, "passing": Passing, "open": Open, "swallowing": Swallowing, "declaring": Declaring}
NETWORKS |= {"listing": Listing, "narrow": PassingToNarrow}


class Plain(Task):
    """Sets the channels itself."""

    build_dataset = collate = train_step = build_metrics = eval_step = None

    def build_model(self, num_classes=None):
        return create_configured(self, num_classes=3, in_channels=2)


@pytest.fixture(autouse=True)
def registered():
    with forgotten():
        for name, network in NETWORKS.items():
            register_model(name, network)
        register_task("plain", Plain, tables=[])
        yield


def build(name, *words, task="plain"):
    return (
        make_task(load([f"TASK={task}", f"MODEL.NAME={name}", "MODEL.NUM_CLASSES=3", *words]).values)
        .build_model()
        .arguments
    )


def test_they_reach_the_constructor_in_the_form_of_its_default():
    assert build("own") == {"in_channels": 2, "widths": (8, 16), "pool": "average", "rules": None}
    options = "MODEL.OPTIONS={widths: [1, 2], pool: null, rules: [3]}"
    assert build("own", options) == {"in_channels": 2, "widths": (1, 2), "pool": None, "rules": [3]}
    assert build("own", options, task="classification") == {
        "in_channels": 3,
        "widths": (1, 2),
        "pool": None,
        "rules": [3],
    }


def test_a_constructor_that_passes_options_on_has_those_of_its_parent():
    passed = build("passing", "MODEL.OPTIONS={depth: 5, pool: max}")
    assert passed == {"in_channels": 2, "widths": (4,), "pool": "max", "rules": None, "depth": 5}
    with pytest.raises(
        UserError, match="no option 'pol': did you mean 'pool'.*: depth, in_channels, pool, rules, widths"
    ):
        build("passing", "MODEL.OPTIONS.pol=max")
    with pytest.raises(UserError, match="model 'vit' has no option 'pol': did you mean 'pool'"):
        create_model("vit", pol="max")  # its **options are a list of names
    with pytest.raises(UserError, match="model 'swallowing' has no option 'detph': did you mean 'depth'"):
        create_model("swallowing", detph=4)
    assert create_model("swallowing", in_channels=1, depth=4).arguments["depth"] == 4  # tasks pass channels to any
    assert build("open", "MODEL.OPTIONS.anything=[1]") == {"in_channels": 2, "anything": [1]}


def test_a_constructor_that_takes_any_name_is_built_with_what_a_task_sets_and_has_the_options_that_it_lists():
    assert build("listing", "MODEL.OPTIONS.width=4") == {"in_channels": 2, "width": 4}
    with pytest.raises(UserError, match="model 'listing' has no option 'widht': did you mean 'width'"):
        build("listing", "MODEL.OPTIONS.widht=4")
    with pytest.raises(UserError, match="model 'narrow' has no option 'in_channels'"):  # its parent takes none
        build("narrow")


def test_an_exception_of_a_constructor_with_options_is_a_line_with_its_traceback(monkeypatch):
    def build_own(*words, kind):
        task = make_task(load(["TASK=plain", "MODEL.NAME=own", *words]).values)
        with pytest.raises(kind) as refusal:
            build_model(task.config, task)
        return refusal.value

    monkeypatch.setattr(nn, "Linear", lambda *_: 1 // 0)
    refusal = build_own("MODEL.OPTIONS={pool: max, rules: x}", kind=OwnCodeError)
    begin = "MODEL.OPTIONS {pool: 'max', rules: 'x'}: own could not be built: ZeroDivisionError: integer "
    assert str(refusal).startswith(begin)
    assert "self.head = " in refusal.traceback
    refusal = build_own("MODEL.OPTIONS={pool: 3, rules: x}", kind=UserError)
    assert type(refusal) is UserError and str(refusal).endswith("by zero; pool is 'average' by default")
    build_own(kind=ZeroDivisionError)  # without options, it is not theirs
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory")
    limited = [OSError(number, "x") for number in (errno.EMFILE, errno.ENOSPC)]
    for error, kind in ((MemoryError(), MemoryError), *((one, OSError) for one in limited), (missing, OwnCodeError)):
        monkeypatch.setattr(nn, "Linear", Mock(side_effect=error))
        build_own("MODEL.OPTIONS={pool: max}", kind=kind)  # the machine's limits are nobody's options


@pytest.mark.parametrize("option", ["dpth", "pool"])
def test_an_option_that_a_constructor_would_ignore_is_refused_and_what_the_task_sets_is_not(option):
    taken = build("swallowing", "MODEL.OPTIONS.depth=5")
    assert (taken["depth"], taken["in_channels"]) == (5, 7)
    with pytest.raises(UserError, match=f"model 'swallowing' has no option '{option}': .*valid options: depth$"):
        build("swallowing", f"MODEL.OPTIONS.{option}=1")


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        (
            "own",
            "{wdths: [1]}",
            "no option 'wdths': did you mean 'widths'? valid options: in_channels, pool, rules, widths",
        ),
        (
            "own",
            "{in_channels: 1}",
            "MODEL.OPTIONS.in_channels: task plain sets the option in_channels itself: remove it",
        ),
        ("own", "{num_classes: 1}", "task plain sets the option num_classes itself: set MODEL.NUM_CLASSES instead"),
        ("declaring", "{pool: max}", "MODEL.OPTIONS.pool: declaring has a key for it: set MODEL.OWN.POOL instead"),
    ],
)
def test_what_does_not_exist_or_is_set_twice_is_refused(name, words, message):
    assert message in refusal_of(build, name, f"MODEL.OPTIONS={words}")


def test_a_declared_key_reaches_the_constructor_and_none_keeps_its_default():
    assert build("declaring")["pool"] == "token"
    assert build("declaring", "MODEL.OWN.POOL=max", task="classification")["pool"] == "max"
    assert build("declaring", "MODEL.OWN.POOL=null")["pool"] == "average"
    assert build("declaring", "MODEL.OWN.POOL=null", "MODEL.OPTIONS.pool=max")["pool"] == "max"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            ["MODEL.OWN.POOLS"],
            "key MODEL.OWN.POOLS sets a parameter .* no option 'pools'.*: in_channels, pool, rules, widths",
        ),
        (["MODEL.MY.POOL", "MODEL.ITS.POOL"], "keys MODEL.MY.POOL and MODEL.ITS.POOL both set the option 'pool'"),
    ],
)
def test_a_key_without_a_parameter_of_its_own_is_refused_at_registration(keys, message):
    with pytest.raises(UserError, match=message):
        register_model("other", Own, keys=[Key(key, "x", "text", "how") for key in keys])


def test_a_task_that_does_not_read_them_is_refused():
    config = load(["MODEL.NAME=own", "MODEL.OPTIONS.pool=max"]).values
    task = SimpleNamespace(build_model=lambda: create_model("own", 3))
    with pytest.raises(UserError, match="MODEL.OPTIONS: task classification builds its network without them"):
        build_model(config, task)


def test_options_of_a_backbone_keep_the_others_of_the_variant():
    words = ["TASK=image_segmentation", "MODEL.NAME=fcn_resnet50", "MODEL.BACKBONE=resnet18"]
    options = "MODEL.OPTIONS={backbone_options: {dilation: 1, frozen_batch_norm: true}}"
    network = make_task(load([*words, options]).values).create_network(2)
    assert network.backbone.feature_strides == (4, 8, 16, 16)
    assert not any(isinstance(layer, nn.BatchNorm2D) for layer in network.backbone.sublayers())
    with pytest.raises(UserError, match=r"resnet18 has it: set MODEL.OPTIONS.backbone_options.dilation instead"):
        make_task(load([*words, "MODEL.OPTIONS.dilation=1"]).values)


@pytest.mark.parametrize("name, option", [("vit", "num_heads"), ("upernet_swin_tiny", "auxiliary_channels")])
def test_a_size_of_zero_that_divides_by_zero_is_refused(name, option):
    with pytest.raises(
        UserError, match=f"^model '{name}' cannot be built with {option} 0: expected a number from 1 up"
    ):
        create_model(name, 3, **{option: 0})
