"""Checkpoints of a training run: written whole, loaded without executing anything, refused if they belong
elsewhere."""

import hashlib
import json
import pickle
from pathlib import Path

import torch

from icfgd.files import write_whole

FORMAT = 1


def fingerprint(**description):
    """A digest of what a run is (plain values, and objects by their repr); two runs that differ have
    different ones."""
    text = json.dumps(description, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def save(path, identity, state):
    """Write `state` (nested dicts and lists of tensors and plain values) for the run called `identity`."""
    return write_whole(
        path, lambda handle: torch.save({"format": FORMAT, "identity": identity, "state": state}, handle)
    )


def load(path, identity):
    """The state saved at `path`, or None if there is no such file.

    Raises `ValueError` if the file is damaged or was written by another run.
    """
    path = Path(path)
    if not path.exists():
        return None
    try:
        saved = torch.load(path, weights_only=True, map_location="cpu")
        version, owner, state = saved["format"], saved["identity"], saved["state"]
    except (
        RuntimeError,
        EOFError,
        KeyError,
        TypeError,
        OSError,
        ValueError,
        pickle.UnpicklingError,
    ) as error:
        raise ValueError(
            f"checkpoint {path.name} is damaged or no checkpoint ({error}); delete it to start afresh."
        ) from error
    if version != FORMAT or owner != identity:
        raise ValueError(
            f"checkpoint {path.name} belongs to another run or version; use another file, or delete it."
        )
    return state
