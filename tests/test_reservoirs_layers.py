"""Layers, patterns, stacks, freezing: equality with PyTorch, orthogonality, causality, seeds, bad input."""

import pytest
import torch
from torch import nn

from icfgd.reservoirs import freezing, initialise, layers, patterns
from icfgd.reservoirs.stack import Stack

KINDS = list(layers.KINDS.items())


def noise(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def make(letter, d=8, seed=0, **options):
    layer = layers.KINDS[letter](d, heads=2, dtype=torch.float64, **options)
    return layer.initialise(initialise.private_generator(seed), orthogonal=letter != "L")


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_block_equals_the_pre_norm_layer_of_torch(dtype, tolerance, causal, training):
    torch.manual_seed(1)
    theirs = nn.TransformerEncoderLayer(
        16, 4, 24, dropout=0.0, batch_first=True, norm_first=True, dtype=dtype
    )
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(0.1 * torch.randn_like(p))  # no bias stays zero and no scale one
    theirs.train(training)
    ours = layers.Block(16, 4, 24, causal=causal, dtype=dtype).load_torch(theirs)
    x = noise(3, 7, 16, dtype=dtype)
    mask = nn.Transformer.generate_square_subsequent_mask(7, dtype=dtype) if causal else None
    found = []
    for layer in (ours, theirs):
        z = x.clone().requires_grad_(True)
        y = layer(z) if layer is ours else layer(z, src_mask=mask)
        (y * noise(3, 7, 16, seed=2, dtype=dtype)).mean().backward()
        found.append((y, z.grad))
    for a, b in zip(*found):
        assert (a - b).abs().max() <= tolerance
    stacked = torch.cat(
        [ours.attention.query.weight.grad, ours.attention.key.weight.grad, ours.attention.value.weight.grad]
    )
    assert (stacked - theirs.self_attn.in_proj_weight.grad).abs().max() <= tolerance
    pairs = [
        (ours.linear1, theirs.linear1),
        (ours.linear2, theirs.linear2),
        (ours.norm1, theirs.norm1),
        (ours.norm2, theirs.norm2),
        (ours.attention.output, theirs.self_attn.out_proj),
    ]
    for a, b in pairs:
        assert (a.weight.grad - b.weight.grad).abs().max() <= tolerance
        assert (a.bias.grad - b.bias.grad).abs().max() <= tolerance


def test_block_differs_from_the_post_norm_layer():
    theirs = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True, dtype=torch.float64)
    ours = layers.Block(16, 4, 24, dtype=torch.float64).load_torch(theirs)
    x = noise(3, 7, 16)
    assert (ours(x) - theirs(x)).abs().max() > 0.1


def test_load_torch_refuses_other_sizes():
    theirs = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
    with pytest.raises(ValueError, match="layer has"):
        layers.Block(16, 4, 24).load_torch(theirs)


def test_gru_and_convolution_are_what_they_say():
    layer = make("G")
    x = noise(2, 5, 8)
    assert torch.allclose(layer(x), x + layer.gru(layer.norm(x))[0])
    layer = make("C", taps=3)
    z = nn.functional.glu(layer.input(layer.norm(x)), dim=-1)
    weights = torch.softmax(layer.kernel(z).view(2, 5, 2, 3), -1)
    out = torch.zeros_like(z)
    for t in range(5):
        for c in range(8):
            for j in range(3):
                if 0 <= t + j - 1 < 5:
                    out[:, t, c] += weights[:, t, c // 4, j] * z[:, t + j - 1, c]
    assert torch.allclose(layer(x), x + layer.output(out))


def test_every_projection_of_a_reservoir_is_orthogonal_by_itself():
    for letter in "RFGC":
        layer = make(letter, d=12)
        parts = []
        for name, weight in layer.named_parameters():
            if weight.ndim == 2:
                rows = {"G": 6, "C": 12}.get(letter) if ("gru" in name or name == "input.weight") else None
                parts += weight.split(rows) if rows else [weight]
        assert len(parts) == {"R": 6, "F": 2, "G": 12, "C": 4}[letter]
        for W in parts:
            small = W.mT @ W if W.shape[0] >= W.shape[1] else W @ W.mT
            assert (small - torch.eye(len(small), dtype=W.dtype)).abs().max() < 1e-10
    stacked = make("L", d=12)
    W = stacked.attention.query.weight
    assert (W.mT @ W - torch.eye(12, dtype=W.dtype)).abs().max() > 0.1


@pytest.mark.parametrize("letter", "LRFC")
def test_causal_layers_do_not_look_ahead_and_others_do(letter):
    for causal in (True, False):
        layer, x = make(letter, causal=causal), noise(1, 9, 8)
        y = x.clone()
        y[:, 5] += noise(8, seed=3)  # a constant would be invisible to the normalisation
        change = (layer(x) - layer(y)).abs().amax((0, 2))
        assert change[5] > 1e-6
        assert (change[:5] == 0).all() or not causal
        if not causal and letter != "F":
            assert change[:5].max() > 1e-6


def test_dimensions_and_kinds_that_cannot_be():
    with pytest.raises(ValueError, match="causal"):
        layers.BiGRU(8, causal=True)
    with pytest.raises(ValueError, match="even"):
        layers.BiGRU(7)
    with pytest.raises(ValueError, match="divide"):
        layers.Block(8, heads=3)
    with pytest.raises(ValueError, match="divide"):
        layers.DynamicConvolution(8, heads=3)
    with pytest.raises(ValueError, match="odd"):
        layers.DynamicConvolution(8, taps=2)
    for _, kind in KINDS:
        with pytest.raises(ValueError, match="d = 0"):
            kind(0)
    for letter in "RF":
        with pytest.raises(ValueError, match="ffn"):
            layers.KINDS[letter](8, ffn=0)
    with pytest.raises(ValueError, match="x has shape"):
        make("F")(noise(2, 8))


def test_creating_layers_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    Stack("LRFGC", 8, heads=2)
    assert torch.equal(before, torch.get_rng_state())


def test_patterns_of_the_paper():
    assert patterns.alternating(7, 3) == "LRLRLRL"
    assert patterns.alternating(7, 2) == "LLRLRLL"
    assert patterns.frozen(patterns.alternating(12, 4)) == [2, 4, 6, 8]
    assert patterns.alternating(5, 0) == "LLLLL"
    assert patterns.place(6, 3, "middle") == "LRRRLL"
    assert patterns.place(6, 2, "middle") == "LLRRLL"
    assert patterns.place(6, 3, "top") == "LLLRRR"
    assert patterns.place(6, 3, "bottom") == "RRRLLL"
    assert patterns.place(7, 3) == "LRLRLRL"
    assert patterns.replaced("LRLGL", "F") == "LFLFL"
    assert patterns.removed("LRLGCF") == "LL"
    assert patterns.trained("LRF") == "LLL"


@pytest.mark.parametrize("n", range(1, 14))
def test_alternating_is_centred_and_has_the_right_count(n):
    for k in range(0, (n + 1) // 2 + 1):
        pattern = patterns.alternating(n, k)
        assert len(pattern) == n
        assert pattern.count("R") == k
        assert "RR" not in pattern
        if k:
            at = patterns.frozen(pattern)
            assert abs(at[0] - (n - 1 - at[-1])) <= 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: patterns.parse(""),
        lambda: patterns.parse("LX"),
        lambda: patterns.parse(3),
        lambda: patterns.alternating(4, 3),
        lambda: patterns.alternating(0, 0),
        lambda: patterns.alternating(3, -1),
        lambda: patterns.place(3, 4),
        lambda: patterns.place(3, 1, "centre"),
        lambda: patterns.replaced("LR", "L"),
        lambda: patterns.removed("RR"),
    ],
)
def test_patterns_refuse_nonsense(call):
    with pytest.raises(ValueError):
        call()


def test_a_reservoir_is_its_seed():
    weights = {}
    for key, (seed, reservoir) in {"a": (0, 5), "b": (1, 5), "c": (0, 6), "d": (0, 5)}.items():
        weights[key] = Stack("LRG", 8, heads=2, seed=seed, reservoir_seed=reservoir).state_dict()
    for name, value in weights["a"].items():
        assert torch.equal(value, weights["d"][name])
        frozen = not name.startswith("layers.0")
        assert torch.equal(value, weights["b"][name]) or not frozen
        if value.ndim == 2:
            assert torch.equal(value, weights["b"][name]) == frozen
            assert torch.equal(value, weights["c"][name]) != frozen


def test_the_upstream_gradient_is_the_same_with_and_without_freezing():
    x, found = noise(2, 5, 8), []
    for frozen in (True, False):
        stack = Stack("LRLFL", 8, heads=2, dtype=torch.float64)
        if not frozen:
            stack.requires_grad_(True)
        stack(x).square().mean().backward()
        found.append(stack)
    ours, theirs = (dict(s.named_parameters()) for s in found)
    for name, p in ours.items():
        if p.requires_grad:
            assert torch.allclose(p.grad, theirs[name].grad, rtol=1e-10, atol=1e-14)
            assert p.grad.abs().max() > 0 or "key.bias" in name
        else:
            assert p.grad is None
            assert theirs[name].grad is not None


def test_frozen_parameters_stay_and_are_not_in_the_optimiser():
    stack = Stack("LRLCL", 8, heads=2)
    before = {n: p.detach().clone() for n, p in stack.named_parameters()}
    kept = freezing.trainable(stack)
    updates = torch.optim.Adam(kept, lr=0.1)
    for i in range(5):
        updates.zero_grad()
        stack.train()(noise(2, 5, 8, seed=i, dtype=torch.float32)).square().mean().backward()
        updates.step()
    ids = {id(p) for p in kept}
    for name, p in stack.named_parameters():
        frozen = name.split(".")[1] in "13"
        assert (id(p) in ids) != frozen
        assert torch.equal(p, before[name]) == frozen or "key.bias" in name


def test_no_weight_product_is_computed_for_a_frozen_layer():
    """Count matrix products in the backward pass: 2 per trained linear map, 1 per frozen one."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        products = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.products += func.overloadpacket in (
                torch.ops.aten.mm,
                torch.ops.aten.bmm,
                torch.ops.aten.addmm,
            )
            return func(*args, **(kwargs or {}))

    def products(frozen):
        layer, x = make("F"), noise(2, 5, 8).requires_grad_(True)
        if frozen:
            freezing.freeze(layer)
        loss = layer(x).square().mean()
        with Count() as counted:
            loss.backward()
        return counted.products

    assert products(False) == 4
    assert products(True) == 2


def test_counting_and_normalisation_only():
    stack = Stack("LRL", 8, heads=2, ffn=16)
    block = 4 * (64 + 8) + (8 * 16 + 16) + (16 * 8 + 8) + 32
    assert freezing.count(stack) == (2 * block, 3 * block)
    freezing.normalisation_only(stack)
    assert freezing.count(stack) == (3 * 32, 3 * block)
    freezing.normalisation_only(stack, also=("layers.0.linear1",))
    assert freezing.count(stack)[0] == 3 * 32 + 8 * 16 + 16
    stack(noise(1, 3, 8, dtype=torch.float32)).sum().backward()
    assert {n for n, p in stack.named_parameters() if p.grad is not None} == {
        n for n, p in stack.named_parameters() if "norm" in n or "layers.0.linear1" in n
    }
    with pytest.raises(ValueError, match="also"):
        freezing.normalisation_only(stack, also=("head",))
    with pytest.raises(ValueError, match="no normalisation"):
        freezing.normalisation_only(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="trainable"):
        freezing.trainable(freezing.freeze(nn.Linear(2, 2)))
    for call in (freezing.freeze, freezing.count, freezing.trainable):
        with pytest.raises(ValueError, match="module is"):
            call(3)


def test_frozen_layers_stay_in_evaluation_mode():
    stack = Stack("LRL", 8, heads=2).train()
    assert [layer.training for layer in stack.layers] == [True, False, True]


def test_stack_refuses_unknown_backskip_and_negative_seeds():
    with pytest.raises(ValueError, match="Did you mean 'st'"):
        Stack("LR", 8, heads=2, backskip="sst")
    with pytest.raises(ValueError, match="seed"):
        Stack("LR", 8, heads=2, seed=-1)
