"""Files written whole: a reader never sees half a file, whatever happens to the writer.

Every file of results, parameters and checkpoints goes through here. What the files mean belongs to the rooms
that write them.
"""

import os
import tempfile
from pathlib import Path


def write_whole(path, write, mode="wb"):
    """Call `write(handle)` on a fresh file beside `path`, flush it to the disk and rename it to `path`.

    The rename is atomic, so `path` holds either its old content or all of the new one. Returns the path.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(descriptor, mode, **text) as handle:
            write(handle)
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path
