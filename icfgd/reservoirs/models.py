"""Models of the three real tasks around a `Stack`: classifier, language model, speller (encoder and decoder).

Each knows its loss and its evaluation, nothing of optimisers. All end in a layer normalisation, as pre-norm
stacks do.
"""

import torch
from torch import nn
from torch.nn import functional as F

from icfgd import checks
from icfgd.reservoirs.initialise import fill, linear, private_generator
from icfgd.reservoirs.layers import Attention, Block
from icfgd.reservoirs.stack import Stack
from icfgd.reservoirs.tasks import END, START

INPUT_SCALE = 3.0  # of tied embeddings of size 0.1: larger makes scores large, smaller slows the first steps


def _embedding(symbols, d, generator, dtype, spread=0.02):
    weight = torch.empty(symbols, d, dtype=dtype)
    nn.init.normal_(weight, std=spread, generator=generator)
    return nn.Parameter(weight)


def sinusoids(length, d, dtype=torch.float64):
    """Rows (length, d) of unit mean square: sines, then cosines, of angular frequencies 1 down to about
    1/10000.
    """
    if checks.integer("d", d, low=2) % 2:
        raise ValueError(f"d = {d}; an even width is required.")
    angle = torch.arange(checks.integer("length", length, low=1), dtype=torch.float64)[:, None] * 10000.0 ** (
        -torch.arange(0, d, 2, dtype=torch.float64) / d
    )
    return (2**0.5 * torch.cat([angle.sin(), angle.cos()], dim=1)).to(dtype)


class Classifier(nn.Module):
    """Tokens (B, T, inputs) -> scores (B, classes): linear embedding, positions, stack, normalisation,
    mean, linear head.
    """

    def __init__(self, pattern, d, inputs=8, tokens=8, classes=10, seed=0, dtype=torch.float32, **stack):
        super().__init__()
        generator = private_generator(seed, 1000)
        self.embed, self.head = linear(inputs, d, dtype), linear(d, classes, dtype)
        for part in (self.embed, self.head):
            fill(part.weight, part.bias, generator, orthogonal=False)
        self.positions = _embedding(tokens, d, generator, dtype)
        self.stack = Stack(pattern, d, seed=seed, dtype=dtype, **stack)
        self.norm = nn.LayerNorm(d, dtype=dtype)

    def start(self, x):
        """The input of the stack (B, T, d)."""
        return self.embed(x) + self.positions

    def finish(self, states):
        """Scores (B, classes) from the output (B, T, d) of the stack."""
        return self.head(self.norm(states).mean(-2))

    def forward(self, x):
        """Tokens (B, T, inputs) -> scores (B, classes)."""
        return self.finish(self.stack(self.start(x)))

    @torch.no_grad()
    def accuracy(self, x, classes):
        """Share of correct classes."""
        return float((self(x).argmax(-1) == classes).double().mean())


class LanguageModel(nn.Module):
    """Symbols (B, T) -> logits (B, T, symbols) of the next symbol; causal; the output map is the embedding
    (tied).

    Positions start as sinusoids (Vaswani et al. 2017) and are trained: at this size the previous symbol is
    found much earlier than from random positions.
    """

    def __init__(self, pattern, d, symbols, context, seed=0, dtype=torch.float32, **stack):
        super().__init__()
        generator = private_generator(seed, 1000)
        self.context = checks.integer("context", context, low=1)
        self.embedding = _embedding(symbols, d, generator, dtype, 0.1)
        self.positions = nn.Parameter(0.1 * sinusoids(context, d, dtype))
        self.stack = Stack(pattern, d, causal=True, seed=seed, dtype=dtype, **stack)
        self.norm = nn.LayerNorm(d, dtype=dtype)

    def forward(self, symbols):
        """(B, T) with T <= context -> (B, T, symbols)."""
        length = symbols.shape[-1]
        if length > self.context:
            raise ValueError(f"symbols has {length} positions; at most context = {self.context} is allowed.")
        x = INPUT_SCALE * (F.embedding(symbols, self.embedding) + self.positions[:length])
        return F.linear(self.norm(self.stack(x)), self.embedding)

    def loss(self, inputs, targets):
        """Mean negative log-likelihood in nats."""
        return F.cross_entropy(self(inputs).flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def nats(self, symbols, stride=None, batch=64):
        """Mean negative log-likelihood in nats of a text (N,), every symbol predicted once.

        Windows of `context` symbols advance by `stride` (default half the context); in each only the last
        `stride` predictions count (in the first window all), so that every counted symbol but the first has
        at least context - stride symbols before it.
        """
        T = self.context
        stride = max(1, T // 2) if stride is None else checks.integer("stride", stride, low=1)
        if stride > T or len(symbols) < T + 1:
            raise ValueError(
                f"stride = {stride}, length = {len(symbols)}; stride <= {T} < length is required."
            )
        starts = list(range(0, len(symbols) - T, stride))
        total = count = 0
        for i in range(0, len(starts), batch):
            at = torch.tensor(starts[i : i + batch])[:, None] + torch.arange(T)
            losses = F.cross_entropy(self(symbols[at]).mT, symbols[at + 1], reduction="none")
            keep = torch.ones_like(losses, dtype=torch.bool)
            keep[:, : T - stride] = False
            if i == 0:
                keep[0] = True
            total += float(losses[keep].double().sum())
            count += int(keep.sum())
        return total / count


class DecoderBlock(nn.Module):
    """A pre-norm decoder layer: causal self-attention, attention to the encoder's output, feed-forward."""

    def __init__(self, d, heads, ffn=None, dtype=torch.float32):
        super().__init__()
        self.block = Block(d, heads, ffn, causal=True, dtype=dtype)
        self.cross, self.norm = Attention(d, heads, dtype=dtype), nn.LayerNorm(d, dtype=dtype)

    def initialise(self, generator):
        """PyTorch's defaults drawn from `generator`. Returns self."""
        self.block.initialise(generator)
        self.cross.initialise(generator)
        return self

    def forward(self, x, memory):
        """x (B, T, d), memory (B, S, d) -> (B, T, d)."""
        block = self.block
        x = x + block.attention(block.norm1(x))
        x = x + self.cross(self.norm(x), memory)
        return x + block.linear2(F.relu(block.linear1(block.norm2(x))))


class Speller(nn.Module):
    """Letters to phonemes: a stack as encoder (frozen layers go there), `decoder` trained layers, greedy
    decoding.
    """

    def __init__(
        self,
        pattern,
        d,
        letters=26,
        phonemes=41,
        decoder=1,
        longest=12,
        seed=0,
        dtype=torch.float32,
        heads=4,
        ffn=None,
        **stack,
    ):
        super().__init__()
        generator = private_generator(seed, 1000)
        self.letters, self.sounds = (_embedding(n, d, generator, dtype, 1.0) for n in (letters, phonemes))
        self.places, self.times = (_embedding(longest, d, generator, dtype, 1.0) for _ in range(2))
        self.encoder = Stack(pattern, d, heads, ffn, seed=seed, dtype=dtype, **stack)
        self.norm, self.last = nn.LayerNorm(d, dtype=dtype), nn.LayerNorm(d, dtype=dtype)
        self.decoder = nn.ModuleList(
            DecoderBlock(d, heads, ffn, dtype).initialise(private_generator(seed, 2000, i))
            for i in range(checks.integer("decoder", decoder, low=1))
        )
        self.head = linear(d, phonemes, dtype)
        fill(self.head.weight, self.head.bias, generator, orthogonal=False)

    def encode(self, letters):
        """Letters (B, T) -> memory (B, T, d)."""
        x = F.embedding(letters, self.letters) + self.places[: letters.shape[-1]]
        return self.norm(self.encoder(x))

    def decode(self, sounds, memory):
        """Scores (B, S, phonemes) of the next phoneme after each of `sounds` (B, S)."""
        x = F.embedding(sounds, self.sounds) + self.times[: sounds.shape[-1]]
        for layer in self.decoder:
            x = layer(x, memory)
        return self.head(self.last(x))

    def forward(self, letters, sounds):
        """Scores (B, S, phonemes) for letters (B, T) and given phonemes (B, S)."""
        return self.decode(sounds, self.encode(letters))

    def loss(self, letters, sounds):
        """Mean negative log-likelihood in nats of the phonemes up to the first END; sounds (B, S) begins
        with START.
        """
        targets = sounds[:, 1:]
        counted = (targets != END) | (torch.cumsum(targets == END, -1) == 1)
        losses = F.cross_entropy(self(letters, sounds[:, :-1]).mT, targets, reduction="none")
        return (losses * counted).sum() / counted.sum()

    @torch.no_grad()
    def spell(self, letters, limit=11):
        """Greedy phoneme sequences (lists of integers, without START and END) for letters (B, T)."""
        memory = self.encode(letters)
        sounds = torch.full((len(letters), 1), START, device=letters.device)
        for _ in range(limit):
            best = self.decode(sounds, memory)[:, -1].argmax(-1, keepdim=True)
            sounds = torch.cat([sounds, best], dim=1)
            if bool((sounds == END).any(-1).all()):
                break
        return [_until_end(row) for row in sounds[:, 1:].tolist()]


def _until_end(row):
    return row[: row.index(END)] if END in row else row
