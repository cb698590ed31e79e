"""In-context functional gradient descent: formulas, models, proofs by computation and experiments.

The rooms of this package are listed in the API page of the book. Imports go one way: `kernels`, `symbolic`, `claims`,
`checks` and `device` know nothing of the rest; `attention` and `processes` stand on them; `transformer`, `descent` and
`bayes` stand on those and do not know each other.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("icfgd")
except PackageNotFoundError:  # running from an unpacked source tree
    __version__ = "0+unknown"
