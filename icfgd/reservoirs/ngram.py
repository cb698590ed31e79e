"""An n-gram model of symbols with interpolated Kneser-Ney smoothing: the baseline a trained language model
must beat.

Counts are numpy arrays of integer codes, so that a text of millions of symbols is counted in seconds. Metrics
and tasks belong elsewhere.
"""

import numpy as np

from icfgd import checks


class KneserNey:
    """Interpolated Kneser-Ney model of order `order` (contexts of `order` - 1 symbols) over symbols 0..`size`
    - 1.

    Each order m has the absolute discount D_m = n_1 / (n_1 + 2 n_2) of its counts (n_i: entries counted i
    times). The highest order uses counts, the lower ones the number of distinct symbols seen in front; the
    unigram is interpolated with the uniform distribution, so every symbol has a positive probability.
    Contexts never seen fall through to the next lower order. Kneser and Ney (1995); Chen and Goodman (1999),
    section 2.7.
    """

    def __init__(self, symbols, order, size):
        self.order = checks.integer("order", order, low=1)
        self.size = checks.integer("size", size, low=2)
        if self.size**self.order >= 2**63:
            raise ValueError(
                f"order = {order} with size = {size} overflows 64-bit codes; size**order < 2**63 is required."
            )
        symbols = self._read("symbols", symbols)
        if symbols.size < self.order + 1:
            raise ValueError(
                f"symbols has length {symbols.size}; at least order + 1 = {order + 1} is required."
            )
        grams, counts = np.unique(self._codes(symbols, self.order), return_counts=True)
        self._tables = [self._table(grams, counts)]
        for m in range(self.order - 1, 0, -1):
            # Every distinct (m+1)-gram is one distinct symbol in front of the m-gram it ends with.
            grams, counts = np.unique(grams % self.size**m, return_counts=True)
            self._tables.insert(0, self._table(grams, counts))

    def _read(self, name, symbols):
        symbols = np.asarray(symbols)
        if symbols.ndim != 1 or not np.issubdtype(symbols.dtype, np.integer):
            raise ValueError(
                f"{name} has shape {symbols.shape} and type {symbols.dtype}; a 1-D integer array is required."
            )
        if symbols.size and (symbols.min() < 0 or symbols.max() >= self.size):
            raise ValueError(
                f"{name} has values in [{symbols.min()}, {symbols.max()}]; [0, {self.size - 1}] is required."
            )
        return symbols.astype(np.int64)

    def _codes(self, symbols, m):
        """The code of the m-gram ending at each position m-1, m, ..."""
        count = symbols.size - m + 1
        code = np.zeros(count, dtype=np.int64)
        for i in range(m):
            code = code * self.size + symbols[i : i + count]
        return code

    def _table(self, grams, counts):
        once, twice = int((counts == 1).sum()), int((counts == 2).sum())
        discount = once / (once + 2 * twice) if once else 0.5
        contexts, start = np.unique(grams // self.size, return_index=True)
        totals = np.add.reduceat(counts, start)
        kinds = np.diff(np.append(start, grams.size))
        return grams, counts - discount, contexts, totals, discount * kinds / totals

    def probabilities(self, symbols):
        """P(symbol | the order-1 symbols before it) for every position order-1, order, ... of a 1-D integer
        array.

        Returns float64 of length len(symbols) - order + 1.
        """
        symbols = self._read("symbols", symbols)
        if symbols.size < self.order:
            raise ValueError(f"symbols has length {symbols.size}; at least order = {self.order} is required.")
        full = self._codes(symbols, self.order)
        p = np.full(full.size, 1.0 / self.size)
        for m, (grams, discounted, contexts, totals, backoff) in enumerate(self._tables, start=1):
            code = full % self.size**m
            at, seen = _find(contexts, code // self.size)
            hit, found = _find(grams, code)
            own = np.where(found, discounted[hit], 0.0) / totals[at]
            p = np.where(seen, own + backoff[at] * p, p)
        return p

    def bits(self, symbols):
        """Bits per symbol of a 1-D integer array (its first order-1 symbols serve as context only)."""
        return float(-np.log2(self.probabilities(symbols)).mean())


def _find(table, codes):
    at = np.minimum(np.searchsorted(table, codes), table.size - 1)
    return at, table[at] == codes
