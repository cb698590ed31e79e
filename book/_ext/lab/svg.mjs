/* Small helpers for drawing: elements, paths, scales, axes, number formats. They know nothing of the problem drawn. */

const SVG = "http://www.w3.org/2000/svg";

/** Create an element; children are nodes or strings. Names that start with "svg:" are SVG elements. */
export function make(name, attributes = {}, ...children) {
  const node = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

/** Set attributes that have changed since the last call; most of a drawing stays as it is from frame to frame. */
export function set(node, attributes) {
  const known = node.labAttributes ??= {};
  for (const key in attributes) {
    const value = String(attributes[key]);
    if (known[key] !== value) node.setAttribute(key, known[key] = value);
  }
}

/** The next larger number with one digit and a half, so that an axis does not change with every small move. */
export function roundUp(x) {
  const unit = 10 ** Math.floor(Math.log10(x)) / 2;
  return unit * Math.ceil(x / unit - 1e-9);
}

/** Show a text in which "x_name" stands for x with the subscript name; nothing happens if it is shown already. */
export function write(node, text) {
  if (node.labText === text) return;
  node.labText = text;
  node.replaceChildren(...text.split(/(_[a-z]+)/).map((part) => part[0] === "_" ? make("sub", {}, part.slice(1)) : part));
}

/** Linear scale from [a, b] to [from, to]. */
export const linear = (a, b, from, to) => (x) => from + (x - a) / (b - a) * (to - from);

export const clamp = (x, low, high) => Math.min(high, Math.max(low, x));

const tenths = (x) => Math.round(x * 10) / 10;

/** Path through (x(i), y(i)) for i = 0, stride, 2 stride, ..., count - 1. */
export function path(count, x, y, stride = 1) {
  let d = "";
  for (let i = 0; i < count; i += stride) d += `${i ? "L" : "M"}${tenths(x(i))} ${tenths(y(i))}`;
  return d;
}

/** Keep exactly `count` children of `name` in a group and return them. */
export function pool(group, name, count, attributes = {}) {
  while (group.childElementCount > count) group.lastElementChild.remove();
  while (group.childElementCount < count) group.append(make(`svg:${name}`, attributes));
  return group.children;
}

/** A number for people: three significant digits, a real minus sign. */
export function say(x) {
  if (!Number.isFinite(x)) return "out of range";
  if (x === 0) return "0";
  const size = Math.abs(x);
  const text = size >= 1e4 || size < 1e-3 ? x.toExponential(1).replace("e+", "e") : String(Number(x.toPrecision(3)));
  const [digits, power] = text.replace(/-/g, "\u2212").split("e");
  const shown = digits.replace(/\.0$/, "");
  return power ? `${shown === "1" ? "" : shown === "\u22121" ? "\u2212" : `${shown}\u00d7`}10${[...power].map((c) => "\u207b⁰¹²³⁴⁵⁶⁷⁸⁹"["\u22120123456789".indexOf(c)]).join("")}` : digits;
}

/** Tick values of a linear axis: multiples of 1, 2 or 5 times a power of ten, about `wanted` of them. */
export function ticks(low, high, wanted = 5) {
  const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const out = [];
  for (let x = Math.ceil(low / step) * step; x <= high + 1e-9 * step; x += step) out.push(Number(x.toPrecision(10)));
  return out;
}

/** Draw axes into a group. x and y: {scale, ticks, label, text}; box: {left, right, top, bottom}. */
export function axes(group, box, x, y) {
  const ends = [x, y].flatMap((axis) => [...axis.ticks, axis.scale(axis.ticks[0]), axis.scale(axis.ticks.at(-1))]);
  const key = [box.left, box.right, box.top, box.bottom, ...ends].join();
  if (group.labKey === key) return;
  group.labKey = key;
  group.replaceChildren();
  const text = (attributes, content) => group.append(make("svg:text", { class: "lab-tick", ...attributes }, content));
  for (const v of y.ticks) {
    const at = tenths(y.scale(v));
    group.append(make("svg:path", { class: v === y.zero ? "lab-zero" : "lab-grid", d: `M${box.left} ${at}H${box.right}` }));
    text({ x: box.left - 6, y: at + 4, "text-anchor": "end" }, (y.text ?? say)(v));
  }
  for (const v of x.ticks) {
    const at = tenths(x.scale(v));
    group.append(make("svg:path", { class: "lab-grid", d: `M${at} ${box.bottom}v4` }));
    text({ x: at, y: box.bottom + 17, "text-anchor": "middle" }, (x.text ?? say)(v));
  }
  text({ x: box.right, y: box.bottom + 32, "text-anchor": "end", class: "lab-tick lab-axis" }, x.label);
  if (y.label) text({ x: box.left, y: box.top - 8, class: "lab-tick lab-axis" }, y.label);
}
