"""The last digits: L-BFGS in float64 on one large fixed batch, after the stochastic steps."""

import torch

from icfgd.device import generator


def polish(engine):
    """Improve the best state of every run of an `Engine`; a result is kept only if the held-out loss is
    lower."""
    s = engine.settings
    best = engine.best.double()
    for run, (task, seed) in enumerate(zip(engine.tasks, engine.seeds)):
        coordinates = engine.coordinates.of_run(run)
        held_out = task.draw(s.held_out, s.queries, generator(2**40 + seed, engine.device), pool=s.pool)
        batch = task.draw(s.polish_contexts, s.queries, generator(2**41 + seed, engine.device), pool=s.pool)
        theta = best[run : run + 1].clone()
        before = _loss(coordinates, theta, held_out, s.queries)
        theta = _minimise(coordinates, theta, batch, s.queries, s.polish)
        after = _loss(coordinates, theta, held_out, s.queries)
        if after < before:
            best[run], engine.best_loss[run] = theta[0], after.to(engine.dtype)
    engine.best, engine.theta, engine.polished = best, best, True
    engine.record(engine.best_loss)


def _minimise(coordinates, theta, batch, queries, iterations):
    theta = theta.requires_grad_(True)
    optimiser = torch.optim.LBFGS(
        [theta],
        max_iter=iterations,
        history_size=20,
        tolerance_grad=1e-12,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimiser.zero_grad()
        value = batch.loss(coordinates.weights(theta, batch.X[None], queries)[0])
        value.backward()
        return value

    optimiser.step(closure)
    return theta.detach()


@torch.no_grad()
def _loss(coordinates, theta, batch, queries):
    return batch.loss(coordinates.weights(theta, batch.X[None], queries)[0])
