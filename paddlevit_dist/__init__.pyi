"""The public names for type checkers, which do not see what is imported on first use; a test compares both lists."""

from .checkpoint.load import load_weights as load_weights
from .data.sampler import EvaluationSampler as EvaluationSampler
from .data.sampler import TrainingSampler as TrainingSampler
from .distributed import (
    all_gather as all_gather,
)
from .distributed import (
    barrier as barrier,
)
from .distributed import (
    broadcast_object as broadcast_object,
)
from .distributed import (
    is_main as is_main,
)
from .distributed import (
    rank as rank,
)
from .distributed import (
    reduce_dict as reduce_dict,
)
from .distributed import (
    world_size as world_size,
)
from .engine.trainer import Trainer as Trainer
from .inference.predictor import Predictor as Predictor
from .library.data import open_dataset as open_dataset
from .library.meters import (
    Accuracy as Accuracy,
)
from .library.meters import (
    CocoAP as CocoAP,
)
from .library.meters import (
    MeanIoU as MeanIoU,
)
from .library.meters import (
    RadialError as RadialError,
)
from .library.meters import (
    ScanNetAP as ScanNetAP,
)
from .library.meters import (
    VolumeDice as VolumeDice,
)
from .library.models import create_model as create_model
from .library.models import create_transform as create_transform
from .library.runs import (
    TrainedRun as TrainedRun,
)
from .library.runs import (
    evaluate as evaluate,
)
from .library.runs import (
    load_config as load_config,
)
from .library.runs import (
    predict as predict,
)
from .library.runs import (
    train as train,
)
from .models import list_models as list_models
from .registry import (
    register_callback as register_callback,
)
from .registry import (
    register_dataset as register_dataset,
)
from .registry import (
    register_model as register_model,
)
from .registry import (
    register_task as register_task,
)
from .registry import (
    register_transform as register_transform,
)
from .runtime.errors import Stopped as Stopped
from .runtime.errors import UserError as UserError
from .settings.key import Key as Key
from .settings.key import Range as Range
from .tasks.callback import Callback as Callback

__version__: str
