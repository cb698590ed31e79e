"""The attention layer exactly as the paper writes it.

Here, and only here, tokens are columns: a prompt is Z with d covariate rows and one label row, and a layer is
Z + sum_h V_h Z M h(B_h X, C_h X). The functions use nothing but matrix products, sums and transposes, so the same code
runs on sympy matrices (proofs) and on torch tensors (tests of the batched engine in `transformer`).
"""

import sympy as sp
import torch

from icfgd import checks


def mask(n, queries=1, like=None):
    """The mask M = diag(I_n, 0_q): it removes query tokens from every sum. Shape (n+q, n+q).

    With `like` a torch tensor the result is a tensor of its dtype; otherwise a sympy matrix.
    """
    n, queries = checks.integer("n", n, low=1), checks.integer("queries", queries, low=1)
    if like is None or isinstance(like, sp.MatrixBase):
        return sp.diag(*([1] * n + [0] * queries))
    checks.finite("like", like)
    ones = torch.ones(n, dtype=like.dtype, device=like.device)
    return torch.diag(torch.cat([ones, ones.new_zeros(queries)]))


def prompt(X, y):
    """The prompt Z_0 (d+1, n+q) from covariates X (d, n+q) in columns and n context labels y; query slots are 0.

    sympy matrices or torch tensors (then with leading batch dimensions as well).
    """
    if isinstance(X, torch.Tensor):
        checks.shape("X", checks.finite("X", X), (None, None))
        checks.shape("y", checks.finite("y", y), (None,))
        checks.alike(X=X, y=y)
        checks.batches(X=X.shape[:-2], y=y.shape[:-1])
        tokens, n = X.shape[-1], y.shape[-1]
        _check_lengths(tokens, n)
        slots = y.new_zeros(*y.shape[:-1], tokens - n)
        row = torch.cat([y, slots], -1).unsqueeze(-2)
        batch = torch.broadcast_shapes(X.shape[:-2], row.shape[:-2])
        return torch.cat([X.expand(*batch, *X.shape[-2:]), row.expand(*batch, 1, tokens)], dim=-2)
    X, y = _sympy_matrix("X", X), list(_sympy_matrix("y", y))
    _check_lengths(X.cols, len(y))
    return X.col_join(sp.Matrix([y + [0] * (X.cols - len(y))]))


def _check_lengths(tokens, n):
    if not 1 <= n < tokens:
        raise ValueError(f"y has {n} labels for {tokens} tokens; at least 1 and at most {tokens - 1} are required.")


def value_matrix(A, r):
    """V = diag(A, -r): the block-diagonal value matrix (d+1, d+1). Note the sign: r > 0 descends.

    A (d, d): a sympy matrix or a torch tensor; r: a number or a symbol, or a tensor with one entry.
    """
    if isinstance(A, torch.Tensor):
        corner = checks.finite("r", torch.as_tensor(r, dtype=checks.finite("A", A).dtype, device=A.device))
        if corner.numel() != 1:
            raise ValueError(f"r has shape {tuple(corner.shape)}; one number is required.")
    else:
        A, corner = _sympy_matrix("A", A), sp.Matrix([[_sympy_number("r", r)]])
    if len(A.shape) != 2 or A.shape[0] != A.shape[1]:
        raise ValueError(f"A has shape {tuple(A.shape)}; a square matrix (d, d) is required.")
    return torch.block_diag(A, -corner.reshape(1, 1)) if isinstance(A, torch.Tensor) else sp.diag(A, -corner)


def attention_matrix(h, U, W, n):
    """The matrix h(U, W) of shape (n+q, n+q); rows are summed tokens, columns are output tokens.

    h is a kernel of `kernels` (softmax columns are normalised over the n context rows and are 0 in query rows) or any
    function of (U, W) that returns the matrix. U, W (d, n+q) hold tokens in columns.
    """
    if not hasattr(h, "weights") and not callable(h):
        raise ValueError(f"h = {h!r}; a kernel or a function of (U, W) is required.")
    if U.shape != W.shape or not 1 <= checks.integer("n", n, low=1) <= U.shape[-1]:
        raise ValueError(
            f"U, W have shapes {tuple(U.shape)}, {tuple(W.shape)} for n = {n}; the same tokens, at least n, are required."
        )
    if not hasattr(h, "weights"):
        return h(U, W)
    if isinstance(U, torch.Tensor):
        if not h.normalised:
            return h.matrix(U.mT, W.mT)
        context = h.weights(U[..., :n].mT, W.mT)
        queries = context.new_zeros(*context.shape[:-2], U.shape[-1] - n, context.shape[-1])
        return torch.cat([context, queries], dim=-2)
    H = sp.Matrix(U.cols, W.cols, lambda i, j: h.symbolic(U[:, i], W[:, j]))
    if h.normalised:
        sums = [sum(H[i, j] for i in range(n)) for j in range(H.cols)]
        H = sp.Matrix(H.rows, H.cols, lambda i, j: H[i, j] / sums[j] if i < n else 0)
    return H


def layer(Z, heads, M, n):
    """One layer, Z + sum over heads (V, B, C, h) of V Z M h(B X, C X), with X the covariate rows of Z (paper, sec. 2)."""
    _check_layer(Z, heads, M)
    X = Z[..., :-1, :] if isinstance(Z, torch.Tensor) else Z[:-1, :]
    new = Z
    for V, B, C, h in heads:
        new = new + V @ Z @ M @ attention_matrix(h, B @ X, C @ X, n)
    return new


def forward(Z, layers, n):
    """All Z_0, Z_1, ..., Z_k for a list of layers, each a list of heads (V, B, C, h); n context tokens."""
    if not isinstance(Z, sp.MatrixBase):
        checks.shape("Z", checks.finite("Z", Z), (None, None))
    columns = Z.shape[-1]
    checks.integer("n", n, low=1)
    if n >= columns:
        raise ValueError(f"n = {n}; fewer than the {columns} tokens of the prompt are required.")
    M = mask(n, columns - n, like=Z if isinstance(Z, torch.Tensor) else None)
    states = [Z]
    for heads in layers:
        states.append(layer(states[-1], heads, M, n))
    return states


def _check_layer(Z, heads, M):
    if not isinstance(heads, (list, tuple)) or any(not isinstance(h, (list, tuple)) or len(h) != 4 for h in heads):
        raise ValueError(f"heads = {heads!r}; a list of (V, B, C, h) is required.")
    rows, columns = Z.shape[-2:]
    sizes = [("M", M, (columns, columns))]
    for V, B, C, _ in heads:
        sizes += [("V", V, (rows, rows)), ("B", B, (None, rows - 1)), ("C", C, (None, rows - 1))]
    for name, matrix, wanted in sizes:
        if isinstance(Z, torch.Tensor):
            checks.alike(Z=Z, **{name: checks.shape(name, checks.finite(name, matrix), wanted)})
        elif any(w is not None and w != got for w, got in zip(wanted, _sympy_matrix(name, matrix).shape)):
            raise ValueError(f"{name} has shape {matrix.shape}; {wanted} is required (None: any size).")


def _sympy_matrix(name, value):
    if isinstance(value, torch.Tensor):
        raise ValueError(f"{name} is a torch tensor beside sympy matrices; sympy matrices throughout are required.")
    matrix = sp.Matrix(value)
    if not len(matrix) or matrix.has(sp.nan, sp.zoo, sp.oo, -sp.oo):
        raise ValueError(f"{name} = {matrix}; a matrix with finite entries is required.")
    return matrix


def _sympy_number(name, value):
    return _sympy_matrix(name, [[value]])[0]
