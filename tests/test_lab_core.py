"""The lab's numerical core, run under node, against icfgd on a grid of scenes; to 1e-9 in every number it shows."""

import json
import math
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from icfgd import bayes, schedules
from icfgd.kernels import activation
from icfgd.processes import label_process
from icfgd.transformer import Transformer

LAB = Path(__file__).parents[1] / "book" / "_ext" / "lab"
SIZE = 201
NAMES = {"exponential": "scale", "gaussian": "width", "softmax": "scale"}
LABELS = ("linear", "relu", "exponential", "gaussian")
ACTIVATIONS = (*LABELS, "softmax")
RULES = ("constant", "pairs", "chebyshev", "optimal", "trained")

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def node(body, data=None):
    """Run a module body with the lab's modules imported and `data` bound; it calls answer(value)."""
    imports = "".join(
        f'import * as {name} from "{(LAB / f"{name}.mjs").as_uri()}";\n'
        for name in ("core", "steps", "state", "report", "linalg")
    )
    source = f"""{imports}
const data = {json.dumps(data)};
const plain = (key, value) => ArrayBuffer.isView(value) ? Array.from(value) : value;
const answer = (value) => process.stdout.write(JSON.stringify(value, plain));
{body}"""
    run = subprocess.run(
        ["node", "--input-type=module"], input=source, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def grid():
    """Every label kernel with every attention and every rule, with other sizes, depths and noises each time."""
    chance = random.Random(5)
    scenes = []
    for label in LABELS:
        for name in ACTIVATIONS:
            for rule in RULES:
                n = chance.choice([1, 2, 4, 7, 12, 40])
                depth = chance.choice([1, 2, 5, 8] if rule == "trained" else [1, 3, 6, 16, 32])
                scenes.append(
                    {
                        "points": [
                            [chance.randrange(SIZE), round(chance.uniform(-3, 3), 2)] for _ in range(n)
                        ],
                        "query": chance.randrange(SIZE),
                        "label": label,
                        "labelParameter": chance.choice([0.5, 1, 2]) if label in NAMES else 1,
                        "activation": name,
                        "activationParameter": chance.choice([0.25, 0.5, 1, 2]) if name in NAMES else 1,
                        "noise": chance.choice([0.01, 0.1, 1]),
                        "rule": rule,
                        "step": chance.choice([0.02, 0.1, 0.4]),
                        "depth": depth,
                    }
                )
    return scenes


@pytest.fixture(scope="module")
def solved():
    """Pairs (scene, what the core computes for it): the grid, and the six scenes of the page without noise."""
    body = """const all = [...data, ...state.SCENES.map((_, i) => state.sceneState(i + 1))];
    answer(all.map((s) => [s, core.solve(s)]));"""
    return node(body, grid())


def lattice():
    angle = torch.linspace(-1, 1, SIZE, dtype=torch.float64) * (math.pi / 2)
    return torch.stack([torch.cos(angle), torch.sin(angle)], dim=-1)


def parameters(name, value):
    return {NAMES[name]: value} if name in NAMES else {}


def reference(scene, steps):
    """The same scene by icfgd, all positions as queries, and the moments and attention it rests on."""
    at = torch.tensor([cell for cell, _ in scene["points"]])
    y = torch.tensor([label for _, label in scene["points"]], dtype=torch.float64)
    n, points = len(at), lattice()
    model = Transformer(
        2,
        len(steps),
        [activation(scene["activation"], **parameters(scene["activation"], scene["activationParameter"]))],
    )
    X = torch.cat([points[at], points])
    law = label_process(scene["label"], **parameters(scene["label"], scene["labelParameter"])).second_moment(
        points
    )
    cells = torch.cat([at, torch.arange(SIZE)])
    K = law[cells[:, None], cells] + scene["noise"] * torch.eye(n + SIZE, dtype=torch.float64)
    with torch.no_grad():
        model.r[:, 0] = torch.tensor(steps, dtype=torch.float64)
        trace = model.trace(X, y, queries=SIZE)
        weights = model.trace(
            X.expand(n, -1, -1), torch.eye(n, dtype=torch.float64), queries=SIZE
        ).predictions
        H = model.attention(X, queries=SIZE)[0][0]
    # Noise sits on the diagonal only: a context point and a query at the same position have independent noise.
    risks = torch.stack([bayes.conditional_risk(K, w, SIZE) for w in weights])
    return {
        "curves": trace.predictions,
        "residuals": trace.residuals,
        "attention": H[:, :n],
        "wide": H[:, n:],
        "mean": bayes.predict(K, y, SIZE),
        "variance": bayes.risk(K, SIZE),
        "risks": risks.mean(-1),
        "queryRisks": risks[:, scene["query"]],
        "bayesRisk": bayes.risk(K, SIZE).mean(),
        "bayesQueryRisk": bayes.risk(K, SIZE)[scene["query"]],
    }, K


def test_core_agrees_with_the_package(solved):
    assert len(solved) == len(LABELS) * len(ACTIVATIONS) * len(RULES) + 6
    for scene, result in solved:
        steps = [float(r) for r in result["steps"]]
        assert len(steps) == scene["depth"]
        wanted, _ = reference(scene, steps)
        for name, value in wanted.items():
            got = torch.tensor(result[name], dtype=torch.float64).reshape(value.shape)
            scale = value.abs().max().clamp(min=1)
            gap = float((got - value).abs().max() / scale)
            assert gap < 1e-9, f"{name} differs by {gap:.2e} (relative to {scale:.2e}) in {scene}"


def test_a_wrong_core_would_be_noticed(solved):
    scene, result = solved[7]
    other = {**scene, "noise": scene["noise"] + 1e-6}
    wanted, _ = reference(other, result["steps"])
    gap = (torch.tensor(result["variance"], dtype=torch.float64) - wanted["variance"]).abs().max()
    assert gap > 1e-9


def moments(scene, K):
    n = len(scene["points"])
    return K[:n, :n], K[:n, n:], K.diagonal()[n:]


def matched(scene):
    same = scene["label"] == scene["activation"] and scene["labelParameter"] == scene["activationParameter"]
    return same and scene["noise"] == 0 and scene["label"] != "relu"


def test_optimal_steps_meet_or_stay_above_the_least_squares_bound(solved):
    exact = 0
    scenes = [(s, r) for s, r in solved if s["rule"] == "optimal"]
    for scene, result in scenes:
        wanted, K = reference(scene, result["steps"])
        best = schedules.optimal(
            moments(scene, K),
            scene["depth"],
            None if matched(scene) else (wanted["attention"], wanted["wide"]),
        )
        bound, got = float(best.losses[-1]), result["risks"][-1]
        assert got >= bound - 1e-9
        assert got <= result["risks"][0] + 1e-12
        if matched(scene):
            exact += 1
            assert got == pytest.approx(bound, rel=1e-9)
    assert exact >= 1
    assert len(scenes) > 20


def test_rules_are_ordered_and_stationary():
    body = """const { sceneState } = state, out = [];
    for (const noise of [0, 0.05]) for (const depth of [1, 2, 4, 7]) for (const activation of ["gaussian", "softmax"]) {
      const s = { ...sceneState(6), noise, depth, activation, activationParameter: activation === "softmax" ? 0.25 : 0.5 };
      const risk = (rule, step = 0.3) => core.solve({ ...s, rule, step }).risks[depth];
      const constants = Array.from({ length: 60 }, (_, i) => risk("constant", 0.02 * 1.08 ** i));
      const { problem, steps: r } = core.solve({ ...s, rule: "optimal" });
      out.push({ optimal: risk("optimal"), chebyshev: risk("chebyshev"), constant: Math.min(...constants),
        moved: Array.from(r, (_, l) => Math.min(...[1e-3, -1e-3].map((e) => { const t = Float64Array.from(r); t[l] *= 1 + e; return steps.finalRisk(problem, t); }))) });
    }
    answer(out);"""
    for row in node(body):
        assert row["optimal"] <= row["chebyshev"] + 1e-12
        assert row["optimal"] <= row["constant"] + 1e-12
        assert all(risk >= row["optimal"] * (1 - 1e-5) for risk in row["moved"])


def test_chebyshev_and_pairs_are_those_of_the_package():
    body = """answer(data.map(([low, high, depth]) => [steps.chebyshev(low, high, depth, false), steps.chebyshev(low, high, 2 * depth, true)]));"""
    cases = [[0.1, 2.0, 1], [0.03, 11.0, 5], [0.5, 0.9, 8]]
    for (low, high, depth), (plain, paired) in zip(cases, node(body, cases), strict=True):
        assert sorted(plain) == pytest.approx(sorted(schedules.chebyshev(low, high, depth)), rel=1e-12)
        assert sorted(paired) == pytest.approx(sorted(schedules.sign_pairs(low, high, 2 * depth)), rel=1e-12)


def test_eigenvalues_agree_with_the_package():
    generator = torch.Generator().manual_seed(3)
    matrices = []
    for n in (1, 2, 5, 40):
        a = torch.randn(n, n, generator=generator, dtype=torch.float64)
        matrices += [a + a.mT, a[:, :1] @ a[:, :1].mT, torch.eye(n, dtype=torch.float64)]
    body = """answer(data.map((m) => linalg.symmetricEigen(Float64Array.from(m.flat()), m.length)));"""
    for matrix, got in zip(matrices, node(body, [m.tolist() for m in matrices]), strict=True):
        n = len(matrix)
        values = torch.tensor(got["values"], dtype=torch.float64)
        vectors = torch.tensor(got["vectors"], dtype=torch.float64).reshape(n, n)
        torch.testing.assert_close(values, torch.linalg.eigvalsh(matrix), atol=1e-11, rtol=1e-11)
        torch.testing.assert_close(
            vectors.mT @ vectors, torch.eye(n, dtype=torch.float64), atol=1e-12, rtol=0
        )
        torch.testing.assert_close(vectors @ torch.diag(values) @ vectors.mT, matrix, atol=1e-11, rtol=0)


def test_states_survive_the_address():
    body = """const { SCENES, encode, decode, sceneState, tidy } = state, scenes = SCENES.map((_, i) => sceneState(i + 1));
    const changed = [
      { ...scenes[1], points: [[3, -1.25], [199, 2]], query: 0, layer: 2 }, { ...scenes[2], pin: scenes[3].pin, depth: 4, layer: 4 },
      { ...scenes[3], pin: null, noise: 0.02, rule: "trained", depth: 8, layer: 8 },
      { ...scenes[0], label: "linear", activation: "softmax", activationParameter: 0.3, rule: "chebyshev" },
    ].map(tidy);
    answer({ pairs: [...scenes, ...changed].map((s) => [s, decode(encode(s))]), plain: scenes.map(encode),
      odd: ["", "#scene=99", "#scene=2&points=&query=x&depth=-3&steps=none:1&label=cubic&noise=nan", "#nonsense", "#scene=2&depth=999&noise=7&points=9,9",
        "#scene=2&pin=gaussian:0.5", "#scene=2&depth=1e400&layer=1e400&steps=constant:NaN"].map((h) => { const s = decode(h); return [s, core.solve(s)]; }) });"""
    answer = node(body)
    for before, after in answer["pairs"]:
        assert after == before
    assert answer["plain"] == [f"#scene={i}" for i in range(1, 7)]
    for scene, result in answer["odd"]:
        assert 1 <= scene["depth"] <= 32
        assert 0 <= scene["layer"] <= scene["depth"]
        assert all(math.isfinite(x) for x in result["mean"] + result["curves"] + result["risks"])


def test_scenes_make_their_points():
    body = """answer(state.SCENES.map((_, i) => { const s = state.sceneState(i + 1), r = core.solve(s);
      return { r, pin: s.pin ? core.solve({ ...s, ...s.pin }) : null }; }));"""
    one, depth, long, relu, softmax, better = node(body)
    gap = max(abs(f - m) for f, m in zip(one["r"]["curves"][SIZE:], one["r"]["mean"], strict=True))
    assert gap < 1e-12
    assert depth["r"]["risks"][-1] < 1.01 * depth["r"]["bayesRisk"]
    assert depth["r"]["risks"] == sorted(depth["r"]["risks"], reverse=True)
    assert long["r"]["risks"][1] < long["r"]["risks"][0] < long["r"]["risks"][-1]
    assert min(relu["r"]["values"]) < -0.1
    assert relu["pin"]["risks"][-1] > relu["pin"]["risks"][0] > relu["r"]["risks"][-1]
    assert relu["r"]["risks"][-1] > 1.2 * relu["r"]["bayesRisk"]
    assert softmax["r"]["risks"][1] < softmax["pin"]["risks"][1]
    assert softmax["r"]["risks"][-1] > 1.2 * softmax["pin"]["risks"][-1] > softmax["pin"]["bayesRisk"]
    assert better["r"]["risks"][-1] < better["pin"]["risks"][-1] / 3


def test_python_code_of_a_scene_gives_its_numbers():
    body = """answer(state.SCENES.map((_, i) => { const s = state.sceneState(i + 1), r = core.solve(s); return [s, r, report.pythonOf(s, r)]; }));"""
    for scene, result, code in node(body):
        names = {"print": lambda *values: None}
        exec(code, names)
        f = [result["curves"][layer * SIZE + scene["query"]] for layer in range(scene["depth"] + 1)]
        assert names["predictions"][:, 0].tolist() == pytest.approx(f, abs=1e-9, rel=1e-9)
        assert float(names["risk"]) == pytest.approx(result["queryRisks"][-1], abs=1e-9, rel=1e-9)
        assert float(names["bayes_risk"]) == pytest.approx(result["bayesQueryRisk"], abs=1e-9)


def test_label_draws_have_the_law():
    body = """let seed = 1;
    const uniform = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
    const normal = () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
    answer(Array.from({ length: 4000 }, () => core.drawLabels(data, normal)));"""
    scene = {
        "points": [[20, 0], [70, 0], [150, 0]],
        "label": "gaussian",
        "labelParameter": 0.5,
        "noise": 0.3,
    }
    draws = torch.tensor(node(body, scene), dtype=torch.float64)
    at = lattice()[[20, 70, 150]]
    want = label_process("gaussian", width=0.5, noise=0.3).second_moment(at)
    got = draws.mT @ draws / len(draws)
    error = ((want.diagonal()[:, None] * want.diagonal() + want**2) / len(draws)).sqrt()
    assert bool(((got - want).abs() < 4.5 * error).all())


def test_trained_steps_are_for_the_package_and_better_than_a_constant():
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("trained", LAB / "trained.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    table = node(
        """const { TRAINED } = await import(data); answer(TRAINED);""", (LAB / "trained.mjs").as_uri()
    )
    assert table["depths"] == module.DEPTHS
    assert table["noise"] == module.NOISE
    for label in LABELS:
        X, moment = module.prompts(label, torch.Generator().manual_seed(module.SEED))
        for name in ACTIVATIONS:
            rows = table["steps"][label][name]
            assert [len(row) for row in rows] == list(range(1, module.DEPTHS + 1))
            model = Transformer(2, 3, [activation(name, **module.PARAMETERS[name])])

            def risk(steps, model=model, X=X, moment=moment):
                with torch.no_grad():
                    model.r[:, 0] = torch.tensor(steps, dtype=torch.float64)
                    return float(module.risk(model, X, moment))

            trained = risk(rows[2])
            assert trained <= min(risk([step] * 3) for step in (0.05, 0.1, 0.2, 0.4, 0.8)) + 1e-9
            assert trained <= risk([*rows[1], 0.0]) + 1e-9
