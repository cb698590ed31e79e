"""The layers a reservoir transformer is made of: maps (B, T, d) -> (B, T, d), each x + change(LN x).

`Block` equals `nn.TransformerEncoderLayer(norm_first=True)` without dropout. The others are the further
reservoirs of Shen et al. (2021), sec. 2.2: feed-forward, bidirectional GRU, dynamic convolution (Wu et al.
2019). Whether a layer is trained is not its business: see `freezing` and `stack`. Width per GRU direction,
residual connections and normalisation around GRU and convolution are our choices; the paper does not give
them.
"""

import torch
from torch import nn
from torch.nn import functional as F

from icfgd import checks
from icfgd.reservoirs.initialise import fill, linear


class Attention(nn.Module):
    """Multi-head softmax attention with one weight matrix (d, d) per projection and scores divided by
    sqrt(d / heads).
    """

    def __init__(self, d, heads, causal=False, dtype=torch.float32):
        super().__init__()
        checks.integer("d", d, low=1)
        checks.integer("heads", heads, low=1)
        if d % heads:
            raise ValueError(f"heads = {heads} does not divide d = {d}; a divisor is required.")
        self.heads, self.causal = heads, bool(causal)
        self.query, self.key, self.value, self.output = (linear(d, d, dtype) for _ in range(4))

    def initialise(self, generator, orthogonal=False):
        """Orthogonal projections, or PyTorch's default for attention (Xavier over the stacked query, key
        and value).
        """
        d = self.query.in_features
        for part in (self.query, self.key, self.value):
            fill(part.weight, part.bias, generator, orthogonal, bound=(6 / (4 * d)) ** 0.5, bias_bound=0)
        fill(self.output.weight, self.output.bias, generator, orthogonal, bias_bound=0)

    def forward(self, x, memory=None):
        """x (B, T, d) attends to memory (B, S, d), by default to itself (then causally, if `causal`)."""
        source = x if memory is None else memory

        def split(z):
            return z.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        q, k, v = split(self.query(x)), split(self.key(source)), split(self.value(source))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal and memory is None)
        return self.output(mixed.transpose(1, 2).flatten(-2))


class _Layer(nn.Module):
    """What all layers share: checked input, reset of the normalisation, one generator."""

    def __init__(self, d):
        super().__init__()
        self.d = checks.integer("d", d, low=1)

    def _read(self, x):
        if x.ndim != 3 or x.shape[-1] != self.d:
            raise ValueError(f"x has shape {tuple(x.shape)}; (B, T, {self.d}) is required.")
        return x

    def initialise(self, generator, orthogonal=False):
        """Draw all parameters from `generator`; with `orthogonal`, every projection is (semi-)orthogonal.
        Returns self.
        """
        for module in self.children():
            if isinstance(module, nn.LayerNorm):
                module.reset_parameters()
            elif isinstance(module, nn.Linear):
                fill(module.weight, module.bias, generator, orthogonal)
            else:
                module.initialise(generator, orthogonal)
        return self


class Block(_Layer):
    """A pre-norm encoder layer: H = MHSA(LN x) + x, then FFN(LN H) + H, with a ReLU between the two maps
    of the FFN.
    """

    def __init__(self, d, heads=4, ffn=None, causal=False, dtype=torch.float32):
        super().__init__(d)
        ffn = _width(d, ffn)
        self.norm1, self.norm2 = nn.LayerNorm(d, dtype=dtype), nn.LayerNorm(d, dtype=dtype)
        self.attention = Attention(d, heads, causal, dtype)
        self.linear1, self.linear2 = linear(d, ffn, dtype), linear(ffn, d, dtype)

    def forward(self, x):
        """(B, T, d) -> (B, T, d)."""
        h = self._read(x) + self.attention(self.norm1(x))
        return h + self.linear2(F.relu(self.linear1(self.norm2(h))))

    @torch.no_grad()
    def load_torch(self, layer):
        """Copy the parameters of an `nn.TransformerEncoderLayer` of the same sizes. Returns self."""
        wanted = (self.d, self.attention.heads, self.linear1.out_features)
        got = (layer.linear1.in_features, layer.self_attn.num_heads, layer.linear1.out_features)
        if got != wanted:
            raise ValueError(f"layer has (d, heads, ffn) = {got}; {wanted} is required.")
        attention = self.attention
        for i, part in enumerate((attention.query, attention.key, attention.value)):
            part.weight.copy_(layer.self_attn.in_proj_weight[i * self.d : (i + 1) * self.d])
            part.bias.copy_(layer.self_attn.in_proj_bias[i * self.d : (i + 1) * self.d])
        attention.output.load_state_dict(layer.self_attn.out_proj.state_dict())
        for name in ("norm1", "norm2", "linear1", "linear2"):
            getattr(self, name).load_state_dict(getattr(layer, name).state_dict())
        return self


class FeedForward(_Layer):
    """x + FFN(LN x): works on every token by itself. `heads` and `causal` are accepted and have no effect."""

    def __init__(self, d, heads=4, ffn=None, causal=False, dtype=torch.float32):
        super().__init__(d)
        ffn = _width(d, ffn)
        self.norm = nn.LayerNorm(d, dtype=dtype)
        self.linear1, self.linear2 = linear(d, ffn, dtype), linear(ffn, d, dtype)

    def forward(self, x):
        """(B, T, d) -> (B, T, d)."""
        return self._read(x) + self.linear2(F.relu(self.linear1(self.norm(x))))


class BiGRU(_Layer):
    """x + GRU(LN x), bidirectional with d / 2 units per direction. It sees the future, so it refuses
    `causal`.
    """

    def __init__(self, d, heads=4, ffn=None, causal=False, dtype=torch.float32):
        super().__init__(d)
        if causal:
            raise ValueError(
                "causal = True; a bidirectional GRU reads the future, so causal = False is required."
            )
        if d % 2:
            raise ValueError(f"d = {d}; an even width is required (d / 2 units per direction).")
        self.norm = nn.LayerNorm(d, dtype=dtype)
        self.gru = nn.GRU(
            d, d // 2, batch_first=True, bidirectional=True, dtype=dtype, device="meta"
        ).to_empty(device="cpu")

    def initialise(self, generator, orthogonal=False):
        """Every gate's matrix is drawn by itself (PyTorch stacks the three gates); biases are PyTorch's
        default.
        """
        self.norm.reset_parameters()
        units = self.d // 2
        for direction in ("", "_reverse"):
            for kind in ("ih", "hh"):
                weight = getattr(self.gru, f"weight_{kind}_l0{direction}")
                bias = getattr(self.gru, f"bias_{kind}_l0{direction}")
                for gate, part in zip(weight.split(units), bias.split(units)):
                    fill(gate, part, generator, orthogonal, bound=units**-0.5, bias_bound=units**-0.5)
        return self

    def forward(self, x):
        """(B, T, d) -> (B, T, d)."""
        return self._read(x) + self.gru(self.norm(x))[0]


class DynamicConvolution(_Layer):
    """x + W_o conv(GLU(W_i LN x)) with a kernel of `taps` weights per head and token, made from the token by
    a softmax.

    Wu et al. (2019). Zero padding; with `causal`, only tokens up to the present one are read, otherwise the
    window is centred (an odd number of taps is required).
    """

    def __init__(self, d, heads=4, ffn=None, causal=False, dtype=torch.float32, taps=3):
        super().__init__(d)
        checks.integer("heads", heads, low=1)
        checks.integer("taps", taps, low=1)
        if d % heads:
            raise ValueError(f"heads = {heads} does not divide d = {d}; a divisor is required.")
        if not causal and taps % 2 == 0:
            raise ValueError(
                f"taps = {taps}; an odd number is required for a centred window (causal = False)."
            )
        self.heads, self.taps = heads, taps
        self.padding = (taps - 1, 0) if causal else (taps // 2, taps // 2)
        self.norm = nn.LayerNorm(d, dtype=dtype)
        self.input, self.kernel, self.output = (
            linear(d, 2 * d, dtype),
            linear(d, heads * taps, dtype),
            linear(d, d, dtype),
        )

    def initialise(self, generator, orthogonal=False):
        """As for the other layers; the two halves of the gated input map are two projections."""
        self.norm.reset_parameters()
        for weight, bias in zip(self.input.weight.split(self.d), self.input.bias.split(self.d)):
            fill(weight, bias, generator, orthogonal)
        for part in (self.kernel, self.output):
            fill(part.weight, part.bias, generator, orthogonal)
        return self

    def forward(self, x):
        """(B, T, d) -> (B, T, d)."""
        z = F.glu(self.input(self.norm(self._read(x))), dim=-1)
        weights = torch.softmax(self.kernel(z).unflatten(-1, (self.heads, 1, self.taps)), dim=-1)
        windows = F.pad(z, (0, 0, *self.padding)).unfold(1, self.taps, 1).unflatten(2, (self.heads, -1))
        return x + self.output((windows * weights).sum(-1).flatten(-2))


KINDS = {"L": Block, "R": Block, "F": FeedForward, "G": BiGRU, "C": DynamicConvolution}


def _width(d, ffn):
    return 4 * d if ffn is None else checks.integer("ffn", ffn, low=1)
