"""A pytest plugin: nbval compares the pictures of a cell as well, pixel by pixel with a tolerance.

nbval alone ignores PNG data, so a figure could be emptied or replaced without any failure. Fonts and line edges may differ by
a shade between machines; a different drawing differs by far more than the tolerance.
"""

import base64
import io

import numpy as np
from nbval.plugin import IPyNbCell
from PIL import Image

MEAN_TOLERANCE = 2.0  # of 255 grey levels, averaged over the picture
LOCAL_TOLERANCE = 40.0  # of 255, averaged over the worst of the blocks of BLOCK x BLOCK pixels
BLOCK = 24


def pictures(outputs):
    """The PNG pictures of a cell's outputs, as base64 text."""
    data = (output.get("data", {}).get("image/png") for output in outputs)
    return ["".join(d) for d in data if d is not None]


def difference(stored, fresh):
    """Why two PNG pictures (base64) differ beyond the tolerance, or None."""
    images = []
    for name, text in (("stored", stored), ("fresh", fresh)):
        try:
            images.append(
                np.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("L"), dtype=float)
            )
        except Exception:
            return f"the {name} picture is not a readable PNG"
    a, b = images
    if a.shape != b.shape:
        return f"stored picture has shape {a.shape}, fresh one {b.shape}"
    gap = np.abs(a - b)
    rows, columns = (size // BLOCK * BLOCK for size in gap.shape)
    blocks = gap[:rows, :columns].reshape(rows // BLOCK, BLOCK, columns // BLOCK, BLOCK).mean(axis=(1, 3))
    if gap.mean() > MEAN_TOLERANCE or (blocks.size and blocks.max() > LOCAL_TOLERANCE):
        return f"pictures differ by {gap.mean():.1f} grey levels on average, {blocks.max():.0f} in the worst block"
    return None


_compare = IPyNbCell.compare_outputs


def compare_outputs(self, test, ref, skip_compare=None):
    if not _compare(self, test, ref, skip_compare):
        return False
    stored, fresh = pictures(ref), pictures(test)
    if len(stored) != len(fresh):
        self.comparison_traceback.append(f"{len(stored)} pictures are stored, {len(fresh)} were drawn")
        return False
    for a, b in zip(stored, fresh):
        why = difference(a, b)
        if why:
            self.comparison_traceback.append(f"picture: {why}")
            return False
    return True


IPyNbCell.compare_outputs = compare_outputs
