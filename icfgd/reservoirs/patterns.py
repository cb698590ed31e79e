"""Which layers are trained and which are frozen, as a string of letters from input to output.

L is a trained transformer block; R, F, G and C are frozen: a transformer block, a feed-forward layer, a
bidirectional GRU and a dynamic convolution. Building the layers is the business of `stack`.
"""

from icfgd import checks

TRAINED = "L"
FROZEN = "RFGC"
LETTERS = TRAINED + FROZEN
PLACES = ("alternate", "middle", "top", "bottom")


def parse(pattern):
    """Return `pattern` if it is a non-empty string of the letters L, R, F, G, C; raises `ValueError`
    otherwise.
    """
    if not isinstance(pattern, str) or not pattern:
        raise ValueError(
            f"pattern = {pattern!r}; a non-empty string of the letters {', '.join(LETTERS)} is required."
        )
    for letter in pattern:
        checks.one_of("letter of pattern", letter, LETTERS)
    return pattern


def alternating(n, k):
    """n layers of which k are reservoirs, alternating with trained layers and centred: `alternating(7, 3)` =
    'LRLRLRL'.

    Needs 2 k - 1 <= n. With 0-based indices the first reservoir is at floor((n - (2k - 1)) / 2). This
    reproduces both examples of Shen et al. (2021), sec. 3.1, and the layers 3, 5, 7, 9 of 12 of their Table
    4; ties are our choice.
    """
    _counts(n, k)
    if 2 * k - 1 > n:
        raise ValueError(f"k = {k} reservoirs cannot alternate in n = {n} layers; 2 k - 1 <= n is required.")
    first = (n - (2 * k - 1)) // 2
    return "".join("R" if i in range(first, first + 2 * k, 2) else "L" for i in range(n))


def place(n, k, where="alternate"):
    """n layers of which k are reservoirs: 'alternate', or one block in the 'middle', at the 'top' or at the
    'bottom'.

    The bottom is next to the input, the string's beginning.
    """
    _counts(n, k)
    checks.one_of("where", where, PLACES)
    if where == "alternate":
        return alternating(n, k)
    below = {"bottom": 0, "top": n - k, "middle": (n - k) // 2}[where]
    return "L" * below + "R" * k + "L" * (n - k - below)


def replaced(pattern, letter):
    """`pattern` with every frozen layer made of kind `letter` (R, F, G or C)."""
    parse(pattern)
    checks.one_of("letter", letter, FROZEN)
    return "".join(letter if a in FROZEN else a for a in pattern)


def removed(pattern):
    """`pattern` without its frozen layers: the comparison at equal trained layers. Some layer must be
    trained.
    """
    rest = parse(pattern).replace("R", "").replace("F", "").replace("G", "").replace("C", "")
    if not rest:
        raise ValueError(f"pattern = {pattern!r} has no trained layer; at least one L is required.")
    return rest


def trained(pattern):
    """`pattern` with every layer trained: the comparison at equal depth."""
    return TRAINED * len(parse(pattern))


def frozen(pattern):
    """The 0-based positions of the frozen layers."""
    return [i for i, letter in enumerate(parse(pattern)) if letter in FROZEN]


def _counts(n, k):
    checks.integer("n", n, low=1)
    checks.integer("k", k, low=0)
    if k > n:
        raise ValueError(f"k = {k} reservoirs in n = {n} layers; k <= n is required.")
