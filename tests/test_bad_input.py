"""Bad input to every public function of floors 0 to 2: a `ValueError` that names the argument, what was got and what is
allowed. The last test finds public functions that have no row here."""

import inspect
from importlib import import_module

import pytest
import sympy as sp
import torch
import witnesses

from icfgd import (
    attention,
    bayes,
    checks,
    descent,
    device,
    kernels,
    notebook,
    plots,
    processes,
    symbolic,
    transformer,
)

X, Y = witnesses.prompts(batch=2, tokens=4)  # (2, 4, 3) and (2, 4)
NAN = X * float("nan")
HOLE = X.clone()
HOLE[1, 2, 0] = float("inf")
INTEGERS = torch.ones(2, 4, 3, dtype=torch.int64)
COMPLEX = X.to(torch.complex128)
GRAM = kernels.kernel("exponential").gram(X)
EYE = torch.eye(3, dtype=torch.float64)
INDEFINITE = torch.diag(torch.tensor([1.0, -1.0, 2.0, 1.0], dtype=torch.float64))
SKEWED = EYE + torch.triu(torch.ones(3, 3, dtype=torch.float64), 1)
RELU = processes.label_process("relu")
LABELS = processes.label_process("exponential", witnesses.SIGMA)
NETWORK_LABELS = processes.label_process("relu_network", width=2)
LAW = processes.Covariates(EYE)
NET = transformer.Transformer(3, 2)
F = descent.Expansion(kernels.kernel("gaussian"), X, Y)
OTHER = descent.Expansion(kernels.kernel("linear"), X, Y)
PROMPT = attention.prompt(X[0].mT, Y[0, :3])
SOFTMAX, LINEAR = kernels.activation("softmax"), kernels.kernel("linear")
COMPOSITE = kernels.composite([(1.0, "linear", EYE)])
OCTAGON = torch.stack([torch.arange(8).mul(torch.pi / 4).cos(), torch.arange(8).mul(torch.pi / 4).sin()], -1).double()
SIGNS = torch.tensor([1.0, -1.0] * 4, dtype=torch.float64)  # its eigenvalue is 1 - sqrt(2)
SCALED_NETWORK_LABELS = processes.label_process("relu_network", EYE, width=2)
MANY = transformer.Transformer(3, 1, batch=(3,))
MASK = torch.eye(4, dtype=torch.float64)
PROMPT = torch.cat([X[0].mT, Y[:1]])
s, t = sp.symbols("s t")

# (function, call, what the message must contain)
ROWS = [
    # checks
    ("checks.one_of", lambda: checks.one_of("law", "spere", ["sphere", "cube"]), "law = 'spere'.*'sphere'.*Allowed.*'cube'"),
    ("checks.integer", lambda: checks.integer("n", 2.0, low=1), "n = 2.0.*integer of at least 1"),
    ("checks.integer", lambda: checks.integer("n", True), "n = True.*integer"),
    ("checks.integer", lambda: checks.integer("n", 0, low=1), "n = 0.*at least 1"),
    ("checks.number", lambda: checks.number("noise", -0.1, low=0), "noise = -0.1.*at least 0"),
    ("checks.number", lambda: checks.number("width", 0.0, low=0, strict=True), "width = 0.0.*greater than 0"),
    ("checks.number", lambda: checks.number("z", float("nan")), "z = nan.*finite"),
    ("checks.number", lambda: checks.number("z", 2.0, high=1.0), "z = 2.0.*at most 1"),
    ("checks.number", lambda: checks.number("z", "2"), "z = '2'.*number"),
    ("checks.finite", lambda: checks.finite("X", HOLE), "X has 1 entries.*of 24"),
    ("checks.finite", lambda: checks.finite("X", INTEGERS), "X is a tensor of torch.int64.*floating"),
    ("checks.finite", lambda: checks.finite("X", COMPLEX), "X is a tensor of torch.complex128.*floating"),
    ("checks.finite", lambda: checks.finite("X", [1.0]), "X is list.*torch tensor"),
    ("checks.shape", lambda: checks.shape("X", X, (5, 3)), r"X has shape \(2, 4, 3\).*5, 3.* required"),
    ("checks.shape", lambda: checks.shape("X", Y[0], (None, 3)), r"X has shape \(4,\)"),
    ("checks.covariates", lambda: checks.covariates("X", X, 4), "X has 4 tokens.*queries = 4.*n >= 1"),
    ("checks.covariates", lambda: checks.covariates("X", X, 0), "queries = 0.*at least 1"),
    ("checks.covariates", lambda: checks.covariates("X", X, 1, d=2), r"X has shape \(2, 4, 3\).*2"),
    ("checks.labels", lambda: checks.labels("y", Y, 5), r"y has shape \(2, 4\).*5"),
    ("checks.labels", lambda: checks.labels("y", Y.double().log().sqrt(), 4), "y has .* not finite"),
    ("checks.symmetric", lambda: checks.symmetric("M", SKEWED), "M is not symmetric"),
    ("checks.symmetric", lambda: checks.symmetric("M", X), r"M has shape \(2, 4, 3\).*square"),
    ("checks.positive_semidefinite", lambda: checks.positive_semidefinite("S", INDEFINITE), "S has smallest eigenvalue -1.*semi-definite"),
    ("checks.positive_semidefinite", lambda: checks.positive_semidefinite("S", 0 * EYE, strict=True), "S has smallest.*positive definite"),
    # symbolic
    ("symbolic.torch_function", lambda: symbolic.torch_function(s + sp.Symbol("t"), (s,)), "free symbols t; only s"),
    ("symbolic.torch_function", lambda: symbolic.torch_function(sp.gamma(s), (s,)), "expression contains gamma"),
    ("symbolic.torch_function", lambda: symbolic.torch_function(s, (s,))(torch.tensor([1])), "torch.int64.*floating"),
    ("symbolic.torch_function", lambda: symbolic.torch_function(s, (s,))(), "0 tensors.*s"),
    ("symbolic.numpy_function", lambda: symbolic.numpy_function(s + sp.Symbol("t"), (s,)), "free symbols t; only s"),
    ("symbolic.numpy_function", lambda: symbolic.numpy_function(s, (s,))("word"), "s: .*real arrays"),
    ("symbolic.rotation", lambda: symbolic.rotation("no angle"), "theta = 'no angle'.*sympy expression"),
    ("symbolic.symbolic_prompt", lambda: symbolic.symbolic_prompt(2, 0), "tokens = 0.*at least 1"),
    ("symbolic.symbolic_prompt", lambda: symbolic.symbolic_prompt(1.5, 2), "d = 1.5.*integer"),
    ("symbolic.is_zero", lambda: symbolic.is_zero(X), "expression = tensor.*sympy expression"),
    ("symbolic.is_nonzero", lambda: symbolic.is_nonzero(X), "expression = tensor.*sympy expression"),
    # kernels
    ("kernels.kernel", lambda: kernels.kernel("exponental"), "name = 'exponental'.*'exponential'.*Allowed.*'linear'"),
    ("kernels.kernel", lambda: kernels.kernel("softmax"), "name = 'softmax'"),
    ("kernels.kernel", lambda: kernels.kernel("exponential", scal=2), "'scal'.*'scale'"),
    ("kernels.kernel", lambda: kernels.kernel("linear", scale=2), "linear.*'scale'.*Allowed"),
    ("kernels.kernel", lambda: kernels.kernel("gaussian", width=0), "width = 0.*greater than 0"),
    ("kernels.kernel", lambda: kernels.kernel("exponential", scale=float("nan")), "scale = nan"),
    ("kernels.kernel", lambda: kernels.kernel("polynomial", degree=0), "degree = 0.*at least 1"),
    ("kernels.kernel", lambda: kernels.kernel(LINEAR, scale=1), "ready kernel"),
    ("kernels.kernel", lambda: kernels.kernel(3), "name = 3"),
    ("kernels.activation", lambda: kernels.activation("sofmax"), "name = 'sofmax'.*'softmax'.*Allowed"),
    ("kernels.activation", lambda: kernels.activation("softmax", scale=-1), "scale = -1"),
    ("kernels.composite", lambda: kernels.composite([]), "terms"),
    ("kernels.composite", lambda: kernels.composite([(float("inf"), "linear", None)]), "alpha = inf"),
    ("kernels.composite", lambda: kernels.composite([(1.0, "lineer", None)]), "'lineer'.*'linear'"),
    ("kernels.absolute", lambda: kernels.absolute(SKEWED), "matrix is not symmetric"),
    ("kernels.absolute", lambda: kernels.absolute(X), "matrix has shape"),
    ("kernels.absolute", lambda: kernels.absolute(EYE * float("nan")), "matrix has 9 entries"),
    ("kernels.Kernel", lambda: kernels.Kernel("k", sp.Symbol("t"), True), "expression = t.*only s, p, q"),
    ("kernels.Kernel", lambda: kernels.Kernel("k", kernels.INNER, True, normalised=True), "expression = s.*exponential"),
    ("kernels.Kernel.matrix", lambda: LINEAR.matrix(X, X[..., :2]), "size 2.*3"),
    ("kernels.Kernel.matrix", lambda: LINEAR.matrix([[1.0]], [[1.0]]), "U is list"),
    ("kernels.Kernel.matrix", lambda: LINEAR.matrix(X, X.numpy()), "W is ndarray"),
    ("kernels.Kernel.matrix", lambda: LINEAR.matrix(X, X.float()), "W.*float32.*float64|float64.*float32"),
    ("kernels.Kernel.gram", lambda: LINEAR.gram(NAN), "not finite"),
    ("kernels.Kernel.gram", lambda: LINEAR.gram(INTEGERS), "torch.int64.*floating"),
    ("kernels.Kernel.gram", lambda: LINEAR.gram(NAN.numpy()), "not finite"),
    ("kernels.Kernel.weights", lambda: SOFTMAX.weights(HOLE, X), "U has .*not finite"),
    ("kernels.Kernel.weights", lambda: SOFTMAX.weights(X, HOLE), "W has .*not finite"),
    ("kernels.Kernel.symbolic", lambda: LINEAR.symbolic([1, 2], [1, 2, 3]), "u and v.*shapes"),
    ("kernels.CompositeKernel.matrix", lambda: COMPOSITE.matrix(X[..., :2], X[..., :2]), "size 2.*3"),
    ("kernels.CompositeKernel.weights", lambda: COMPOSITE.weights(NAN, X), "not finite"),
    ("kernels.CompositeKernel.gram", lambda: COMPOSITE.gram(NAN), "not finite"),
    ("kernels.CompositeKernel.symbolic", lambda: COMPOSITE.symbolic([1, 2], [1, 2]), "2 entries.*3"),
    # device
    ("device.generator", lambda: device.generator(-1), "seed = -1"),
    ("device.generator", lambda: device.generator(1.5), "seed = 1.5"),
    ("device.generator", lambda: device.generator(1, "tpu9"), "device = 'tpu9'.*'cpu'"),
    # attention
    ("attention.mask", lambda: attention.mask(0), "n = 0.*at least 1"),
    ("attention.mask", lambda: attention.mask(2, 0), "queries = 0.*at least 1"),
    ("attention.prompt", lambda: attention.prompt(X.mT, Y), "y has 4 labels for 4 tokens"),
    ("attention.prompt", lambda: attention.prompt(X.mT, Y[:, :0]), "y has"),
    ("attention.prompt", lambda: attention.prompt(NAN.mT, Y[:, :2]), "X has .*not finite"),
    ("attention.prompt", lambda: attention.prompt(sp.ones(2, 3), [1, 2, 3]), "y has 3 labels for 3 tokens"),
    ("attention.value_matrix", lambda: attention.value_matrix(EYE, torch.ones(2)), "r has shape"),
    ("attention.value_matrix", lambda: attention.value_matrix(EYE, float("nan")), "r has"),
    ("attention.value_matrix", lambda: attention.value_matrix(X[0], 0.1), "A has shape"),
    ("attention.attention_matrix", lambda: attention.attention_matrix(LINEAR, X[0].mT, X[0, :, :2].mT, 2), "U, W have shapes .*n = 2.*same tokens"),
    ("attention.attention_matrix", lambda: attention.attention_matrix(SOFTMAX, X[0].mT, X[0].mT, 0), "n = 0"),
    ("attention.layer", lambda: attention.layer(PROMPT, [(EYE, EYE, EYE, LINEAR)], torch.eye(4).double(), 3), r"V has shape .*4, 4"),
    ("attention.layer", lambda: attention.layer(PROMPT, [EYE], torch.eye(4).double(), 3), "heads = .*V, B, C, h"),
    ("attention.forward", lambda: attention.forward(PROMPT, [], 4), "n = 4"),
    ("attention.forward", lambda: attention.forward(PROMPT, [], 0), "n = 0"),
    # processes
    ("processes.random_rotation", lambda: processes.random_rotation(0, device.generator(0)), "d = 0"),
    ("processes.random_rotation", lambda: processes.random_rotation(2, 7), "generator is int.*torch.Generator"),
    ("processes.covariance", lambda: processes.covariance([1.0, 0.0]), "eigenvalues = .*positive"),
    ("processes.covariance", lambda: processes.covariance([1.0, float("nan")]), "eigenvalues"),
    ("processes.covariance", lambda: processes.covariance([]), "eigenvalues"),
    ("processes.power", lambda: processes.power(INDEFINITE, 0.5), "sigma has smallest eigenvalue"),
    ("processes.power", lambda: processes.power(SKEWED, 0.5), "sigma is not symmetric"),
    ("processes.power", lambda: processes.power(EYE, float("nan")), "exponent = nan"),
    ("processes.Covariates", lambda: processes.Covariates(0 * EYE), "sigma has smallest eigenvalue"),
    ("processes.Covariates", lambda: processes.Covariates(EYE, "spere"), "law = 'spere'.*'sphere'"),
    ("processes.Covariates", lambda: processes.Covariates([1.0]), "sigma is list"),
    ("processes.Covariates.standard", lambda: LAW.standard(0, 3, device.generator(0)), "batch = 0"),
    ("processes.Covariates.sample", lambda: LAW.sample(2, 0, device.generator(0)), "tokens = 0"),
    ("processes.Covariates.sample", lambda: LAW.sample(2, 2, None), "generator is NoneType"),
    ("processes.Covariates.sample", lambda: LAW.sample(2, 2, device.generator(0), torch.int64), "dtype = torch.int64"),
    ("processes.Labels", lambda: processes.Labels(LINEAR, noise=-1), "noise = -1"),
    ("processes.Labels", lambda: processes.Labels(LINEAR, sigma=INDEFINITE), "sigma has smallest"),
    ("processes.Labels.whiten", lambda: LABELS.whiten(X[..., :2]), "X has shape"),
    ("processes.Labels.second_moment", lambda: LABELS.second_moment(X[..., :2]), "X has shape .*3"),
    ("processes.Labels.second_moment", lambda: LABELS.second_moment(HOLE), "X has 1 entries"),
    ("processes.Labels.moments", lambda: RELU.moments(X, 2), "queries = 2.*indefinite.*queries = 1 is required"),
    ("processes.Labels.moments", lambda: LABELS.moments(X, 4), "X has 4 tokens.*n >= 1"),
    ("processes.Labels.sample", lambda: LABELS.sample(NAN, device.generator(0)), "X has 24 entries"),
    ("processes.Labels.sample", lambda: LABELS.sample(X, 3), "generator is int"),
    ("processes.ReLUNetworkLabels", lambda: processes.ReLUNetworkLabels(0), "width = 0"),
    ("processes.ReLUNetworkLabels.sample", lambda: NETWORK_LABELS.sample(NAN, device.generator(0)), "X has 24 entries"),
    ("processes.label_process", lambda: processes.label_process("relunetwork"), "'relunetwork'.*'relu_network'.*Allowed"),
    ("processes.label_process", lambda: processes.label_process("relu_network"), "'relu_network'.*'width'"),
    ("processes.label_process", lambda: processes.label_process("composite", width=3), "'composite'.*'terms'"),
    ("processes.label_process", lambda: processes.label_process("linear", scale=1), "linear.*'scale'"),
    ("processes.label_process", lambda: processes.label_process("linear", noise=float("nan")), "noise = nan"),
    # transformer
    ("transformer.Transformer", lambda: transformer.Transformer(0, 2), "d = 0"),
    ("transformer.Transformer", lambda: transformer.Transformer(2, 0), "layers = 0"),
    ("transformer.Transformer", lambda: transformer.Transformer(2, 1, "linear"), "heads = 'linear'.*list"),
    ("transformer.Transformer", lambda: transformer.Transformer(2, 1, []), r"heads = \[\]"),
    ("transformer.Transformer", lambda: transformer.Transformer(2, 1, ["liner"]), "'liner'.*'linear'"),
    ("transformer.Transformer", lambda: transformer.Transformer(2, 3, [["linear"], ["relu"]]), r"heads has rows of sizes \[1, 1\].*3 rows"),
    ("transformer.Transformer", lambda: transformer.Transformer(2, 2, [["linear"], ["relu", "relu"]]), r"sizes \[1, 2\]"),
    ("transformer.Transformer", lambda: transformer.Transformer(2, 2, dtype=torch.int64), "dtype = torch.int64"),
    ("transformer.Transformer.randomise", lambda: transformer.Transformer(2, 1).randomise(0), "generator is int"),
    ("transformer.Transformer.randomise", lambda: transformer.Transformer(2, 1).randomise(device.generator(0), float("nan")), "scale = nan"),
    ("transformer.Transformer.states", lambda: list(NET.states(X[..., :2])), "X has shape .*3"),
    ("transformer.Transformer.attention", lambda: NET.attention(X, 4), "X has 4 tokens"),
    ("transformer.Transformer.trace", lambda: NET.trace(X, Y[:, :2]), "y has shape.*3"),
    ("transformer.Transformer.trace", lambda: NET.trace(X, Y, 0), "queries = 0"),
    ("transformer.Transformer.trace", lambda: NET.trace(X.float(), Y), "X has dtype torch.float32.*float64"),
    ("transformer.Transformer.trace", lambda: NET.trace(X, Y.float()), "y has dtype torch.float32.*float64"),
    ("transformer.Transformer.trace", lambda: NET.trace(X, Y.expand(3, 2, 4)[:, :1].expand(3, 3, 4)), "batch shapes"),
    ("transformer.Transformer.forward", lambda: NET(HOLE, Y), "X has 1 entries"),
    ("transformer.Transformer.forward", lambda: NET(INTEGERS, Y), "X is a tensor of torch.int64"),
    ("transformer.Transformer.forward", lambda: NET(X, Y * float("nan")), "y has"),
    # descent
    ("descent.Expansion", lambda: descent.Expansion(LINEAR, X, Y[:, :2]), "coefficients has shape.*4"),
    ("descent.Expansion", lambda: descent.Expansion(LINEAR, NAN, Y), "centres has"),
    ("descent.Expansion.__call__", lambda: F(X[..., :2]), "size 3.*2|size 2.*3"),
    ("descent.Expansion.__call__", lambda: F(NAN), "not finite"),
    ("descent.Expansion.inner", lambda: F.inner(OTHER), "other is an expansion of 'linear'.*'gaussian' is required"),
    ("descent.Expansion.plus", lambda: F.plus(1.0, OTHER), "other is an expansion of 'linear'.*'gaussian' is required"),
    ("descent.Expansion.plus", lambda: F.plus(float("nan"), F), "scale = nan"),
    ("descent.Expansion.norm", lambda: descent.Expansion(kernels.kernel("relu"), OCTAGON, SIGNS).norm(), "kernel 'relu'.*squared norm -"),
    ("descent.squared_loss", lambda: descent.squared_loss(F, X, Y[:, :2]), "y has shape.*4"),
    ("descent.functional_gradient", lambda: descent.functional_gradient(F, X, Y * float("nan")), "y has"),
    ("descent.descend", lambda: descent.descend(LINEAR, HOLE, Y, [0.1]), "X has 1 entries"),
    ("descent.descend", lambda: descent.descend(LINEAR, X, Y[:, :3], [0.1]), "y has shape.*4"),
    ("descent.descend", lambda: descent.descend(LINEAR, X, Y, [0.1, float("nan")]), "steps.*nan"),
    ("descent.descend", lambda: descent.descend(LINEAR, X[:, :0], Y, [0.1]), "X has"),
    ("descent.coefficients", lambda: descent.coefficients(X, Y, [0.1]), "gram has shape"),
    ("descent.coefficients", lambda: descent.coefficients(GRAM, Y[:, :3], [0.1]), "y has shape.*4"),
    ("descent.residual_polynomial", lambda: descent.residual_polynomial([0.1], NAN), "spectrum has"),
    ("descent.residual_polynomial", lambda: descent.residual_polynomial([float("inf")], Y), "steps.*inf"),
    # bayes
    ("bayes.blocks", lambda: bayes.blocks(X), r"K has shape \(2, 4, 3\).*square"),
    ("bayes.blocks", lambda: bayes.blocks(GRAM, 4), "K has 4 tokens.*n >= 1"),
    ("bayes.blocks", lambda: bayes.blocks(GRAM, 1.5), "queries = 1.5"),
    ("bayes.weights", lambda: bayes.weights(INDEFINITE), "K has .*-1.*semi-definite"),
    ("bayes.weights", lambda: bayes.weights(kernels.kernel("relu").gram(OCTAGON)), "K has .*semi-definite"),
    ("bayes.predict", lambda: bayes.predict(GRAM, Y[:, :2]), "y has shape.*3"),
    ("bayes.predict", lambda: bayes.predict(GRAM * float("nan"), Y), "K has 32 entries"),
    ("bayes.risk", lambda: bayes.risk(GRAM - 3 * torch.diag(torch.tensor([0.0, 0, 0, 1])).double()), "K has Schur complement.*semi-definite"),
    ("bayes.conditional_risk", lambda: bayes.conditional_risk(GRAM, Y[:, :2, None]), "w has shape.*3, 1"),
    ("bayes.excess_risk", lambda: bayes.excess_risk(GRAM, Y[:, :2, None]), "w has shape.*3, 1"),
    # batch shapes, dtypes and kinds that do not go together
    ("attention.mask", lambda: attention.mask(2, like=3), "like is int.*torch tensor"),
    ("attention.prompt", lambda: attention.prompt(X.mT, Y[:1, :3].expand(3, 3)), r"batch shapes \(2,\) of X, \(3,\) of y"),
    ("attention.prompt", lambda: attention.prompt(X.mT, Y[:, :3].float()), "y has dtype torch.float32.*float64"),
    ("attention.prompt", lambda: attention.prompt(X.mT, Y[:, :3] * float("inf")), "y has .*not finite"),
    ("attention.prompt", lambda: attention.prompt(X[0, 0], Y[0, :2]), r"X has shape \(3,\)"),
    ("attention.prompt", lambda: attention.prompt(sp.ones(2, 3), torch.ones(2)), "y is a torch tensor beside sympy"),
    ("attention.prompt", lambda: attention.prompt(sp.ones(2, 3), [1, sp.nan]), "y = .*finite entries"),
    ("attention.value_matrix", lambda: attention.value_matrix(sp.ones(2, 3), 1), r"A has shape \(2, 3\).*square"),
    ("attention.value_matrix", lambda: attention.value_matrix(sp.eye(2), sp.zoo), "r = .*finite"),
    ("attention.value_matrix", lambda: attention.value_matrix(EYE.long(), 1.0), "A is a tensor of torch.int64"),
    ("attention.attention_matrix", lambda: attention.attention_matrix("linear", X[0].mT, X[0].mT, 2), "h = 'linear'.*kernel or a function"),
    ("attention.attention_matrix", lambda: attention.attention_matrix(LINEAR, X[0].mT, X[0].mT, 5), "U, W have shapes .* n = 5"),
    ("attention.layer", lambda: attention.layer(PROMPT, [(EYE, EYE, LINEAR)], MASK, 3), r"heads = .*\(V, B, C, h\)"),
    ("attention.layer", lambda: attention.layer(PROMPT, [(EYE, EYE, EYE, LINEAR)], MASK, 3), r"V has shape \(3, 3\).*4, 4"),
    ("attention.layer", lambda: attention.layer(PROMPT, [(MASK, MASK, EYE, LINEAR)], MASK, 3), r"B has shape \(4, 4\).*3"),
    ("attention.layer", lambda: attention.layer(PROMPT, [(MASK, EYE, EYE * float("nan"), LINEAR)], MASK, 3), "C has 9 entries"),
    ("attention.layer", lambda: attention.layer(PROMPT, [(MASK, EYE.float(), EYE, LINEAR)], MASK, 3), "B has dtype torch.float32"),
    ("attention.layer", lambda: attention.layer(PROMPT, [(MASK, EYE, EYE, LINEAR)], EYE, 3), r"M has shape \(3, 3\).*4, 4"),
    ("attention.layer", lambda: attention.layer(sp.ones(2, 3), [(sp.eye(3), sp.eye(1), sp.eye(1), LINEAR)], sp.eye(3), 2), r"V has shape \(3, 3\)"),
    ("attention.forward", lambda: attention.forward(PROMPT * float("nan"), [], 2), "Z has 16 entries"),
    ("bayes.predict", lambda: bayes.predict(GRAM, Y[:1].expand(3, 4)), r"batch shapes \(2,\) of K, \(3,\) of y"),
    ("bayes.predict", lambda: bayes.predict(GRAM, Y.float()), "y has dtype torch.float32.*float64"),
    ("bayes.predict", lambda: bayes.predict(SKEWED, Y[0]), "K is not symmetric"),
    ("bayes.conditional_risk", lambda: bayes.conditional_risk(GRAM, Y[:1, :3, None].expand(3, 3, 1)), r"\(2,\) of K, \(3,\) of w"),
    ("bayes.conditional_risk", lambda: bayes.conditional_risk(GRAM, Y[:, :3, None].float()), "w has dtype torch.float32"),
    ("bayes.excess_risk", lambda: bayes.excess_risk(GRAM, Y[:1, :3, None].expand(3, 3, 1)), r"\(2,\) of K, \(3,\) of w"),
    ("bayes.excess_risk", lambda: bayes.excess_risk(GRAM, Y[:, :3, None] * float("nan")), "w has 6 entries"),
    ("descent.Expansion", lambda: descent.Expansion("linear", X, Y), "kernel = 'linear'.*kernel of"),
    ("descent.Expansion", lambda: descent.Expansion(LINEAR, X, Y.float()), "coefficients has dtype torch.float32"),
    ("descent.Expansion", lambda: descent.Expansion(LINEAR, X, Y[:1].expand(3, 4)), r"\(2,\) of centres, \(3,\) of coefficients"),
    ("descent.Expansion.inner", lambda: F.inner(3), "other is int.*'gaussian' is required"),
    ("descent.squared_loss", lambda: descent.squared_loss(F, X, Y[:1].expand(3, 4)), r"\(2,\) of X, \(3,\) of y"),
    ("descent.squared_loss", lambda: descent.squared_loss(F, X, Y.float()), "y has dtype torch.float32"),
    ("descent.coefficients", lambda: descent.coefficients(GRAM, Y[:1].expand(3, 4), [0.1]), r"\(2,\) of gram, \(3,\) of y"),
    ("descent.coefficients", lambda: descent.coefficients(GRAM, Y.float(), [0.1]), "y has dtype torch.float32"),
    ("descent.descend", lambda: descent.descend(LINEAR, X, Y, 0.1), "steps = 0.1.*list of numbers"),
    ("descent.descend", lambda: descent.descend(LINEAR, X, Y, ["0.1"]), "steps = '0.1'.*number"),
    ("kernels.Kernel", lambda: kernels.Kernel("k", "s", True), "expression = 's'.*sympy expression"),
    ("kernels.kernel", lambda: kernels.kernel(SOFTMAX), "name = 'softmax' is an attention activation"),
    ("kernels.composite", lambda: kernels.composite([(1.0, SOFTMAX, None)]), "'softmax' is an attention activation"),
    ("kernels.composite", lambda: kernels.composite([(1.0, "linear")]), r"terms = .*\(alpha, kernel, G\)"),
    ("kernels.composite", lambda: kernels.composite([(1.0, "linear", [1.0, 2.0])]), r"G has shape \(2,\).*\(rows, d\)"),
    ("kernels.composite", lambda: kernels.composite([(1.0, "linear", [[1.0, float("nan")]])]), "G has 1 entries"),
    ("kernels.Kernel.matrix", lambda: LINEAR.matrix(X, X[:1].expand(3, 4, 3)), r"\(2,\) of U, \(3,\) of W"),
    ("processes.covariance", lambda: processes.covariance("abc"), "eigenvalues = 'abc'.*list of numbers"),
    ("processes.covariance", lambda: processes.covariance([1.0], 3), "generator is int"),
    ("processes.power", lambda: processes.power(EYE.expand(2, 3, 3), 0.5), r"sigma has shape \(2, 3, 3\).*one matrix"),
    ("processes.Labels", lambda: processes.Labels(SOFTMAX), "'softmax' is an attention activation"),
    ("processes.Labels", lambda: processes.Labels("lineer"), "'lineer'.*'linear'"),
    ("processes.Labels", lambda: processes.Labels(LINEAR, sigma=EYE.long()), "sigma is a tensor of torch.int64"),
    ("processes.ReLUNetworkLabels.sample", lambda: NETWORK_LABELS.sample(X, None), "generator is NoneType"),
    ("processes.ReLUNetworkLabels.sample", lambda: SCALED_NETWORK_LABELS.sample(X[..., :2], device.generator(0)), "X has shape .*3"),
    ("symbolic.torch_function", lambda: symbolic.torch_function(sp.I * s, (s,)), "constant I; finite real"),
    ("symbolic.torch_function", lambda: symbolic.torch_function(sp.oo * s, (s,)), "constant oo; finite real"),
    ("symbolic.torch_function", lambda: symbolic.torch_function(sp.Piecewise((s, s > 0), (0, True)), (s,)), "contains Piecewise.*Allowed: Add"),
    ("symbolic.torch_function", lambda: symbolic.torch_function(sp.Heaviside(s, 1), (s,)), "vanish at 0"),
    ("symbolic.torch_function", lambda: symbolic.torch_function(sp.Eq(s, 1), (s,)), "expression is Equality; a scalar"),
    ("symbolic.torch_function", lambda: symbolic.torch_function(s, (s,))(X.numpy()), "s is ndarray"),
    ("symbolic.torch_function", lambda: symbolic.torch_function(s + t, (s, t))(X, X.float()), "t has dtype torch.float32.*that of s"),
    ("symbolic.torch_function", lambda: symbolic.torch_function(s + t, (s, t))(X, X[..., :2]), r"\(2, 4, 3\) of s, \(2, 4, 2\) of t"),
    ("symbolic.is_zero", lambda: symbolic.is_zero(sp.Matrix(0, 0, [])), "empty matrix"),
    ("symbolic.is_zero", lambda: symbolic.is_zero(sp.nan), "expression = nan"),
    ("symbolic.is_nonzero", lambda: symbolic.is_nonzero("x"), "expression = 'x'"),
    ("transformer.Transformer", lambda: transformer.Transformer(2, 1, ["linear", ["relu"]]), r"\['relu'\].*Allowed"),
    ("transformer.Transformer", lambda: transformer.Transformer(2, 1, batch=(0,)), "batch = 0"),
    ("transformer.Transformer.attention", lambda: NET.attention(X.float()), "X has dtype torch.float32.*float64"),
    ("transformer.Transformer.states", lambda: MANY.states(X), r"batch shapes \(2,\) of X, \(3,\) of r"),
    # notebook and plots
    ("notebook.rounded", lambda: notebook.rounded(float("nan")), "value = nan.*finite"),
    ("notebook.rounded", lambda: notebook.rounded(1.0, 0), "digits = 0"),
    ("notebook.glue", lambda: notebook.glue("key", float("inf")), "value = inf"),
    ("plots.colour", lambda: plots.colour("linaer"), "name = 'linaer'.*'linear'"),
    ("plots.marker", lambda: plots.marker("linaer"), "name = 'linaer'.*'linear'"),
]


@pytest.mark.parametrize("function,call,message", ROWS, ids=[f"{i}-{row[0]}" for i, row in enumerate(ROWS)])
def test_bad_input_is_named(function, call, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()


ROOMS = ("checks", "symbolic", "kernels", "device", "attention", "processes", "transformer", "descent", "bayes")
# no argument can be wrong, or anything is allowed
FREE = {"device.default_device", "symbolic.symmetric_function", "kernels.Kernel.latex", "kernels.CompositeKernel.latex",
        "kernels.CompositeKernel", "transformer.Trace"}
# the arguments of checks are themselves the subject of other rows; the engine's own route checks nothing on purpose
COVERED = {"checks.alike", "checks.batches", "checks.generator", "checks.floating", "checks.tokens", "checks.finite_tokens",
           "checks.overflow", "kernels.unchecked_weights", "kernels.Kernel.unchecked_weights",
           "kernels.CompositeKernel.unchecked_weights"}


def public(room):
    module = import_module(f"icfgd.{room}")
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
            continue
        if inspect.isfunction(value):
            yield f"{room}.{name}"
        elif inspect.isclass(value):
            yield f"{room}.{name}"
            for key, member in vars(value).items():
                if inspect.isfunction(member) and (not key.startswith("_") or key == "__call__"):
                    yield f"{room}.{name}.{key}"


def test_every_public_function_has_a_row():
    found = {name for room in ROOMS for name in public(room)}
    assert not found - {row[0] for row in ROWS} - FREE - COVERED
    assert FREE | COVERED <= found
