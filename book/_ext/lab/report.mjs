/* The written forms of a scene: a table of its numbers layer by layer, and the Python code that computes the same
   numbers with icfgd. */

import { SIZE, position } from "./core.mjs";
import { PARAMETERS } from "./state.mjs";
import { make, say } from "./svg.mjs";

export function tableOf(state, result) {
  const head = ["layer", "step r", "loss, average", "loss at the query", "f at the query", ...result.at.map((_, i) => `residual ${i + 1}`)];
  const row = (l) => [String(l), l ? say(result.steps[l - 1]) : "", say(result.risks[l]), say(result.queryRisks[l]),
    say(result.curves[l * SIZE + state.query]), ...result.at.map((_, i) => say(result.residuals[l * result.n + i]))];
  const bayes = ["Bayes", "", say(result.bayesRisk), say(result.bayesQueryRisk), say(result.mean[state.query]), ...result.at.map(() => "")];
  const line = ([first, ...rest]) => make("tr", {}, make("th", { scope: "row" }, first), ...rest.map((x) => make("td", {}, x)));
  return make("table", {}, make("thead", {}, make("tr", {}, ...head.map((x) => make("th", { scope: "col" }, x)))),
    make("tbody", {}, ...Array.from({ length: state.depth + 1 }, (_, l) => line(row(l))), line(bayes)));
}

const call = (name, parameter) => PARAMETERS[name] ? `"${name}", ${PARAMETERS[name].name}=${parameter}` : `"${name}"`;

/** Python source that ends with the names `predictions`, `residuals`, `risk` and `bayes_risk` at the query. */
export function pythonOf(state, result) {
  const list = (values) => `[${Array.from(values).join(", ")}]`;
  return `import math
import torch
from icfgd import bayes
from icfgd.kernels import activation
from icfgd.processes import label_process
from icfgd.transformer import Transformer

t = torch.tensor(${list([...state.points.map((p) => position(p[0])), position(state.query)])}, dtype=torch.float64)
y = torch.tensor(${list(result.y)}, dtype=torch.float64)
steps = ${list(result.steps)}

angle = math.pi / 2 * t
X = torch.stack([torch.cos(angle), torch.sin(angle)], dim=-1)  # context points, then the query
model = Transformer(2, len(steps), [activation(${call(state.activation, state.activationParameter)})])
with torch.no_grad():
    model.r[:, 0] = torch.tensor(steps, dtype=torch.float64)
    predictions, residuals, _ = model.trace(X, y)
    weights = model(X.expand(len(y), -1, -1), torch.eye(len(y), dtype=torch.float64))
${moment(state)}
risk = bayes.conditional_risk(K, weights)
bayes_risk = bayes.risk(K)
print(predictions[:, 0], risk, bayes_risk)
`;
}

function moment(state) {
  if (state.label !== "relu") return `K = label_process(${call(state.label, state.labelParameter)}, noise=${state.noise}).second_moment(X)`;
  return `cells = torch.linspace(-1, 1, ${SIZE}, dtype=torch.float64) * math.pi / 2  # the law |K| is formed on the whole lattice
law = label_process("relu").second_moment(torch.stack([torch.cos(cells), torch.sin(cells)], dim=-1))
at = ((t + 1) * ${(SIZE - 1) / 2}).round().long()
K = law[at[:, None], at] + ${state.noise} * torch.eye(len(at), dtype=torch.float64)`;
}
