"""Training: tasks, coordinates, the loop with its guards, and checkpoints.

Which networks are trained for the book belongs in `experiments`; many trainings at once belong in `sweep`.
"""

from icfgd.training.loop import Trained, TrainingFailed, train
from icfgd.training.settings import DTYPES, LOSSES, Settings
from icfgd.training.tasks import Batch, Task

__all__ = ["DTYPES", "LOSSES", "Batch", "Settings", "Task", "Trained", "TrainingFailed", "train"]
