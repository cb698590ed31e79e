"""Training: batches, coordinates, the guards, checkpoints that survive SIGKILL, and known optima."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace

import pytest
import torch

from icfgd import losses
from icfgd.device import generator
from icfgd.processes import Covariates, covariance, label_process
from icfgd.schedules import optimal
from icfgd.training import Batch, Settings, Task, TrainingFailed, multistart, train
from icfgd.training.coordinates import Coordinates
from icfgd.training.engine import Engine
from icfgd.training.tasks import stack
from icfgd.transformer import Transformer

QUICK = Settings(steps=40, contexts=16, queries=2, pool=4, held_out=32, check_every=10)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_task(labels="exponential", context=6, d=3, sigma=None, **options):
    sigma = torch.eye(d, dtype=torch.float64) if sigma is None else sigma
    return Task(Covariates(sigma), label_process(labels, sigma, **options), context)


def rotated(d=3, seed=5):
    return covariance([1.0, 0.25, 2.25][:d], generator(seed))


def same(a, b):
    return all(torch.equal(p, q) for m, n in zip(a.models, b.models) for p, q in zip(m.parameters(), n.parameters()))


# Batches


@pytest.mark.parametrize("labels", ["linear", "exponential", "relu", "relu_network"])
@pytest.mark.parametrize("queries", [1, 3])
def test_batch_loss_is_the_integrated_loss(labels, queries):
    task = make_task(labels, sigma=rotated(), **({"width": 4} if labels == "relu_network" else {}))
    coordinates = Coordinates([task], ["softmax"], 2, True)
    theta = coordinates.start([generator(0)], noise=0.3)
    batch = task.draw(7, queries, generator(1))
    got = batch.loss(coordinates.weights(theta, batch.X[None], queries)[0])
    model = coordinates.models(theta)[0]
    parts = [
        losses.integrated_loss(model, torch.cat([batch.X[:, :6], batch.X[:, 6 + j : 7 + j]], 1), task.labels)
        for j in range(queries)
    ]
    torch.testing.assert_close(got, torch.stack(parts).mean(), rtol=1e-10, atol=1e-12)


def test_sampled_batch_averages_to_the_integrated_one():
    task = make_task(context=3)
    w = torch.full((20_000, 3, 1), 0.3, dtype=torch.float64)
    X = task.covariates.sample(1, 4, generator(0)).expand(20_000, 4, 3)
    mean = Batch(X, *task.moments(X, 1), torch.ones(20_000) / 20_000).risk(w)
    drawn = Batch(X, *task.moments(X, 1, generator(1)), torch.ones(20_000) / 20_000).risk(w)
    z = (drawn - mean).mean() / (drawn.std() / 20_000**0.5)
    assert abs(float(z)) < 4.5
    assert float(drawn.std()) > 0.1


def test_pool_is_unbiased_and_shows_rare_contexts():
    task = make_task("linear", context=4)

    def size(batch):  # carried by the largest Gram matrices, like the loss of a deep linear network
        context = batch.X[:, :4]
        return (context.mT @ context).square().sum((-2, -1)) ** 6

    pooled = [task.draw(8, 1, generator(s), pool=8) for s in range(400)]
    plain = [task.draw(8, 1, generator(10_000 + s)) for s in range(400)]
    assert all(abs(float(b.weights.sum()) - 1) < 1e-12 for b in pooled + plain)
    a = torch.stack([(b.weights * size(b)).sum() for b in pooled])
    b = torch.stack([(b.weights * size(b)).sum() for b in plain])
    z = (a.mean() - b.mean()) / (a.var() / 400 + b.var() / 400).sqrt()
    assert abs(float(z)) < 4.5
    assert 2 * float(a.var()) < float(b.var())
    assert torch.stack([size(x).max() for x in pooled]).mean() > torch.stack([size(x).max() for x in plain]).mean()


# Coordinates


@pytest.mark.parametrize("kind", ["whitened", "raw"])
def test_batched_parameters_are_those_of_the_single_networks(kind):
    tasks = [make_task(sigma=rotated(seed=s)) for s in (1, 2)]
    coordinates = Coordinates(tasks, ["exponential", "linear"], 2, True, coordinates=kind)
    theta = coordinates.start([generator(0), generator(1)], noise=0.2)
    batch = stack([task.draw(5, 2, generator(3)) for task in tasks])
    together = coordinates.weights(theta, batch.X, 2)
    for run, model in enumerate(coordinates.models(theta)):
        torch.testing.assert_close(together[run], losses.predictor_weights(model, batch.X[run], 2))


def test_whitened_training_does_not_see_sigma_and_raw_training_does():
    plain, rotated_task = make_task(), make_task(sigma=rotated())
    for kind, equal in (("whitened", True), ("raw", False)):
        settings = replace(QUICK, coordinates=kind, dtype="float64")
        a, b = (train(task, ["exponential"], 2, settings) for task in (plain, rotated_task))
        assert torch.allclose(a.held_out, b.held_out, rtol=1e-6) == equal


def test_a_batched_pass_equals_separate_runs():
    tasks = [make_task(sigma=rotated(seed=s)) for s in (1, 2, 3)]
    settings = replace(QUICK, dtype="float64")
    together = train(tasks, ["softmax"], 2, settings, seeds=[4, 5, 6])
    alone = train(tasks[1], ["softmax"], 2, settings, seeds=[5])
    torch.testing.assert_close(together.held_out[1:2], alone.held_out, rtol=1e-8, atol=0)


def test_steps_are_adam_where_nothing_is_clipped():
    settings = replace(QUICK, clip=1e9, dtype="float64")
    engine = Engine([make_task()], [0], Coordinates([make_task()], ["linear"], 2, True), settings)
    engine.begin()
    parameter = engine.theta.clone().requires_grad_(True)
    adam = torch.optim.Adam([parameter], betas=settings.betas, eps=1e-12)
    draws = generator(1)
    for step in range(12):
        gradient = torch.randn(parameter.shape, generator=draws, dtype=torch.float64)
        adam.param_groups[0]["lr"] = 0.05 * min((step + 1) / 4, (1 - step / 40) / 0.9, 1.0)
        parameter.grad = gradient.clone()
        adam.step()
        engine._adam(gradient, torch.tensor([True]))
        engine.step += 1
    torch.testing.assert_close(engine.theta, parameter.detach(), rtol=1e-8, atol=1e-10)


# Guards


def broken(monkeypatch, when, value=float("nan"), run=0):
    """Replace the gradient of one run by `value` at the calls for which `when(call)` holds."""
    calls, honest = [], Engine.gradient

    def gradient(self):
        loss, grad = honest(self)
        calls.append(len(calls))
        if when(len(calls)):
            grad[run, 3] = value
            loss[run] = value
        return loss, grad

    monkeypatch.setattr(Engine, "gradient", gradient)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_injected_nan_costs_one_step_back_and_touches_no_other_run(monkeypatch, value):
    tasks = [make_task(), make_task()]
    clean = train(tasks, ["exponential"], 2, QUICK)
    with monkeypatch.context() as patch:
        broken(patch, lambda call: call in (13, 14, 30), value)
        hurt = train(tasks, ["exponential"], 2, QUICK)
    assert hurt.failures.tolist() == [3, 0]
    assert all(torch.isfinite(p).all() for m in hurt.models for p in m.parameters())
    assert torch.isfinite(torch.as_tensor(hurt.history["theta"])).all()
    assert hurt.held_out[1] == clean.held_out[1]
    assert float(hurt.held_out[0]) < hurt.history["held_out"][0, 0]


def test_hopeless_training_raises_with_the_last_good_state_saved(monkeypatch, tmp_path):
    broken(monkeypatch, lambda call: call > 15)
    path = tmp_path / "run.checkpoint"
    with pytest.raises(TrainingFailed, match=r"run 0 \(seed 0\) stepped back 21 times.*not finite") as caught:
        train([make_task()], ["exponential"], 2, QUICK, checkpoint=path)
    assert all(torch.isfinite(p).all() for p in caught.value.trained.models[0].parameters())
    saved = torch.load(path, weights_only=True)["state"]
    assert torch.isfinite(saved["best"]).all()
    assert saved["step"] == 36


def test_a_jump_of_the_held_out_loss_steps_back(monkeypatch):
    honest = Engine.evaluate
    looks = []

    def evaluate(self, theta):
        looks.append(1)
        return honest(self, theta) * (1e6 if len(looks) == 4 else 1.0)

    monkeypatch.setattr(Engine, "evaluate", evaluate)
    trained = train(make_task(), ["linear"], 2, QUICK)
    assert trained.failures.tolist() == [1]
    assert trained.history["held_out"].max() < 1e3


@pytest.mark.parametrize("heads", [["exponential"], ["linear"], ["relu"], ["softmax"]])
def test_deep_and_wild_starts_stay_finite(heads):
    settings = replace(QUICK, steps=20, noise=1.0)
    trained = train([make_task(context=8), make_task(context=8)], heads, 7, settings)
    assert torch.isfinite(trained.held_out).all()
    assert (trained.held_out.numpy() <= trained.history["held_out"][0]).all()


def test_no_start_at_all_is_reported(monkeypatch):
    monkeypatch.setattr(Engine, "evaluate", lambda self, theta: torch.full((1,), float("nan")))
    with pytest.raises(TrainingFailed, match="no starting point"):
        train(make_task(), ["linear"], 2, QUICK)


# Checkpoints


def _train_to_file(path, out):
    torch.set_num_threads(1)
    settings = replace(QUICK, steps=120)
    trained = train([make_task(), make_task("exponential", scale=2.0)], ["exponential"], 2, settings,
                    checkpoint=path, checkpoint_every=5)
    torch.save([p.detach() for m in trained.models for p in m.parameters()], out)


def kill_and_resume(folder, moments):
    """Kill a training with SIGKILL at each of `moments` (seconds after its start), then let it finish."""
    context = multiprocessing.get_context("fork")
    path, out = folder / "run.checkpoint", folder / "killed.pt"
    killed = 0
    for moment in moments:
        process = context.Process(target=_train_to_file, args=(path, out))
        process.start()
        time.sleep(moment)
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.join()
    process = context.Process(target=_train_to_file, args=(path, out))
    process.start()
    process.join()
    assert process.exitcode == 0
    return torch.load(out, weights_only=True), killed


def test_a_killed_run_resumes_bit_for_bit(tmp_path):
    _train_to_file(None, tmp_path / "whole.pt")
    whole = torch.load(tmp_path / "whole.pt", weights_only=True)
    count = int(os.environ.get("ICFGD_KILLS", "3"))
    delays = 0.05 + 0.4 * torch.rand(count, generator=generator(int(time.time())), dtype=torch.float64)
    resumed, killed = kill_and_resume(tmp_path, delays.tolist())
    assert killed > 0
    assert all(torch.equal(a, b) for a, b in zip(whole, resumed))
    leftovers = [p.name for p in tmp_path.iterdir() if p.suffix == ".part"]
    assert len(leftovers) <= killed


def test_a_finished_checkpoint_is_not_trained_again(tmp_path, monkeypatch):
    path = tmp_path / "run.checkpoint"
    first = train(make_task(), ["linear"], 2, QUICK, checkpoint=path)
    monkeypatch.setattr(Engine, "gradient", lambda self: pytest.fail("trained again"))
    assert same(first, train(make_task(), ["linear"], 2, QUICK, checkpoint=path))


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"not a checkpoint" * 9])
def test_a_damaged_checkpoint_is_refused(tmp_path, damage):
    path = tmp_path / "run.checkpoint"
    train(make_task(), ["linear"], 1, replace(QUICK, steps=2), checkpoint=path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="run.checkpoint is damaged"):
        train(make_task(), ["linear"], 1, replace(QUICK, steps=2), checkpoint=path)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "run.checkpoint"
    train(make_task(), ["linear"], 1, replace(QUICK, steps=2), checkpoint=path)
    for task, heads in ((make_task(noise=0.1), ["linear"]), (make_task(sigma=rotated()), ["linear"]),
                        (make_task(), ["relu"])):
        with pytest.raises(ValueError, match="another run"):
            train(task, heads, 1, replace(QUICK, steps=2), checkpoint=path)


# Results of training


def test_quick_training_reaches_a_good_loss():
    task = Task(Covariates(torch.eye(5, dtype=torch.float64)), label_process("exponential", scale=2.0), 14)
    trained = train(task, ["exponential"], 3, Settings(steps=100, queries=4))
    assert trained.held_out < 0.2
    assert trained.failures.tolist() == [0]


@pytest.mark.parametrize("layers, level", [(3, 0.24), (5, 0.065), (7, 0.0029)])
def test_deep_linear_attention_reaches_known_levels(layers, level):
    task = Task(Covariates(torch.eye(5, dtype=torch.float64)), label_process("linear"), 8)
    trained = train(task, ["linear"], layers, Settings(steps=150, queries=2))
    batch = task.draw(8_000, 1, generator(5), pool=4)
    with torch.no_grad():
        assert batch.loss(losses.predictor_weights(trained.models[0], batch.X)) < level


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_linear_attention_without_A_meets_the_closed_form(layers):
    task = Task(Covariates(torch.eye(5, dtype=torch.float64)), label_process("linear"), 14)
    settings = Settings(steps=300, learning_rate=0.02, queries=2)
    trained = train(task, ["linear"], layers, settings, free_A=False)
    # The closed form from one large sample, both networks tested on another: half of it rare contexts.
    sample = task.draw(20_000, 1, generator(77))
    best = Transformer(5, layers, ["linear"])
    with torch.no_grad():
        best.r.copy_(torch.tensor(optimal((sample.K, sample.nu.mT, sample.kappa), layers).steps)[:, None])
        batch = task.draw(20_000, 1, generator(78), pool=2)
        ours, bound = (batch.loss(losses.predictor_weights(m, batch.X)) for m in (trained.models[0], best))
    assert 0.999 < float(ours / bound) < 1.01


def test_the_average_replaces_the_best_look_unless_it_is_worse(monkeypatch):
    chosen = train(make_task("linear"), ["linear"], 2, replace(QUICK, average=0.5, dtype="float64"))
    plain = train(make_task("linear"), ["linear"], 2, replace(QUICK, average=0.0, dtype="float64"))
    assert not same(chosen, plain)
    assert chosen.held_out < 1.05 * plain.held_out
    # A mean over nearly all steps holds the bad start, and is refused.
    refused = train(make_task("linear"), ["linear"], 2, replace(QUICK, average=1.0, dtype="float64", held_out=512))
    assert refused.held_out <= 1.001 * refused.history["held_out"][1:].min()


def test_early_stopping_and_multistart():
    stopped = train(make_task(), ["linear"], 1, replace(QUICK, steps=2000, patience=2))
    assert stopped.steps < 1000
    model, found = multistart(make_task(), ["exponential"], 2, replace(QUICK, noise=0.5), starts=3)
    batch = make_task().draw(QUICK.held_out, QUICK.queries, generator(2**42), pool=QUICK.pool)
    with torch.no_grad():
        own = batch.loss(losses.predictor_weights(model, batch.X, QUICK.queries))
    assert own == found.min()
    assert found.min() < found.max()


def test_sampled_loss_trains_too():
    trained = train(make_task(), ["exponential"], 2, replace(QUICK, loss="sampled", steps=80, contexts=64))
    assert float(trained.held_out) < 0.8 * trained.history["held_out"][0]


def test_progress_goes_to_stderr_and_only_when_asked(capsys):
    train(make_task(), ["linear"], 1, replace(QUICK, steps=3))
    assert capsys.readouterr() == ("", "")
    train(make_task(), ["linear"], 1, replace(QUICK, steps=3), progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "3/3 steps" in err


@pytest.mark.parametrize(
    "change, message",
    [
        ({"steps": 0}, "steps = 0"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"loss": "integrate"}, "Did you mean 'integrated'"),
        ({"coordinates": "white"}, "whitened"),
        ({"dtype": "float16"}, "float32"),
        ({"spread": 0.5}, "spread"),
    ],
)
def test_wrong_settings_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        Settings(**change)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="seeds has 1 entries for 2 tasks"):
        train([make_task(), make_task()], ["linear"], 1, QUICK, seeds=[0])
    with pytest.raises(ValueError, match="one shape"):
        train([make_task(), make_task(context=3)], ["linear"], 1, QUICK)
    with pytest.raises(ValueError, match="softmax"):
        train(make_task(), ["softmaxx"], 1, QUICK)
