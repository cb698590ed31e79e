"""Training: tasks, coordinates, the engine with its guards, and checkpoints.

Which networks are trained for the book belongs in `experiments`; many trainings at once belong in `sweep`.
"""

from icfgd.training.engine import Trained, TrainingFailed
from icfgd.training.settings import DTYPES, LOSSES, Settings
from icfgd.training.tasks import Batch, Task
from icfgd.training.train import multistart, train

__all__ = [
    "DTYPES",
    "LOSSES",
    "Batch",
    "Settings",
    "Task",
    "Trained",
    "TrainingFailed",
    "multistart",
    "train",
]
