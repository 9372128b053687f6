// Pictures that can be clicked: bars of categories, histograms of numbers and dates, curves.

import { make } from "/static/api.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 90;

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const percent = (share) => (share > 0 && share < 0.01 ? "<1%" : `${Math.round(100 * share)}%`);

// --- categories ------------------------------------------------------------------------------

const SHOWN = 7;

export function bars(column, drawn, { isChosen, toggle }) {
  const most = Math.max(0.01, ...column.shares, ...drawn.shares);
  const bar = (value, index) => {
    const [real, synthetic] = [make("span", { class: "fill real" }), make("span", { class: "fill synthetic" })];
    real.style.width = `${(100 * column.shares[index]) / most}%`;
    synthetic.style.width = `${(100 * drawn.shares[index]) / most}%`;
    return make(
      "button",
      { type: "button", class: "bar", "aria-pressed": String(isChosen(value)), title: String(value), onclick: () => toggle(value), "data-value": String(value) },
      make("span", { class: "word" }, String(value)),
      make("span", { class: "fills" }, synthetic, real),
      make("span", { class: "share" }, percent(drawn.shares[index])),
    );
  };
  const all = column.values.map(bar);
  const box = make("div", {}, ...all.slice(0, SHOWN));
  if (all.length > SHOWN) {
    const rest = make("details", { open: column.values.slice(SHOWN).some(isChosen) }, make("summary", {}, `${all.length - SHOWN} more`), ...all.slice(SHOWN));
    box.append(rest);
  }
  return box;
}

// --- numbers and dates -----------------------------------------------------------------------

export function histogram(column, drawn, { range, choose }) {
  const { edges } = column;
  const [low, high] = [edges[0], edges.at(-1)];
  const most = Math.max(0.01, ...column.shares, ...drawn.shares);
  const x = (value) => ((value - low) / (high - low)) * WIDTH;
  const rects = (shares, kind) =>
    shares.map((share, index) => {
      const height = (share / most) * (HEIGHT - 4);
      return svg("rect", { class: kind, x: x(edges[index]) + 0.5, y: HEIGHT - height, width: Math.max(0.5, x(edges[index + 1]) - x(edges[index]) - 1), height });
    });
  const words = `${column.name}: from ${column.values[0]} to ${column.values.at(-1)}`;
  const picture = svg(
    "svg",
    { class: "histogram", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words },
    ...rects(column.shares, "real"),
    ...rects(drawn.shares, "synthetic"),
    svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
  );
  if (range) {
    const [from, to] = [Math.max(0, x(range[0] ?? low)), Math.min(WIDTH, x(range[1] ?? high))];
    picture.append(svg("rect", { class: "range", x: from, y: 0, width: Math.max(1, to - from), height: HEIGHT }));
  }
  drag(picture, column, choose);
  return picture;
}

// Dragging chooses whole bins; a click chooses one. Beyond the last bins the range is open.
function drag(picture, column, choose) {
  const bins = column.edges.length - 1;
  const binAt = (event) => {
    const box = picture.getBoundingClientRect();
    return Math.min(bins - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * bins)));
  };
  let start = null;
  const mark = svg("rect", { class: "range", y: 0, height: HEIGHT, width: 0 });
  picture.addEventListener("pointerdown", (event) => {
    start = binAt(event);
    picture.setPointerCapture(event.pointerId);
    picture.append(mark);
  });
  picture.addEventListener("pointermove", (event) => {
    if (start === null) return;
    const [first, last] = [start, binAt(event)].sort((a, b) => a - b);
    mark.setAttribute("x", (first / bins) * WIDTH);
    mark.setAttribute("width", ((last + 1 - first) / bins) * WIDTH);
  });
  picture.addEventListener("pointercancel", () => {
    start = null;
    mark.remove();
  });
  picture.addEventListener("pointerup", (event) => {
    if (start === null) return;
    const [first, last] = [start, binAt(event)].sort((a, b) => a - b);
    start = null;
    choose(first === 0 ? null : column.values[first], last === bins - 1 ? null : column.values[last + 1]);
  });
}

// --- training --------------------------------------------------------------------------------

export function curves(steps) {
  const width = Math.min(1000, Math.max(300, document.querySelector("main").clientWidth - 80)); // text keeps its size
  const [height, left, bottom] = [220, 44, 24];
  const smooth = [];
  let mean = steps[0].loss;
  for (const { step, loss } of steps) smooth.push([step, (mean = 0.8 * mean + 0.2 * loss)]);
  const valid = [];
  for (const { step, valid_loss: loss } of steps) {
    if (loss !== undefined && (!valid.length || valid.at(-1)[1] !== loss)) valid.push([step, loss]);
  }
  const losses = [...smooth, ...valid].map(([, loss]) => loss);
  const [low, high] = [Math.min(...losses), Math.max(...losses)];
  const lastStep = Math.max(1, steps.at(-1).step);
  const x = (step) => left + (step / lastStep) * (width - left - 8);
  const y = (loss) => 8 + ((high - loss) / Math.max(high - low, 1e-6)) * (height - bottom - 16);
  const path = (points, kind) => svg("path", { class: kind, d: points.map(([step, loss], i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(loss).toFixed(1)}`).join("") });
  const label = (text, at, anchor) => svg("text", { x: at[0], y: at[1], "text-anchor": anchor }, text);
  const best = valid.length ? Math.min(...valid.map(([, loss]) => loss)).toFixed(3) : "not measured yet";
  const words = `Loss by step. Training ${smooth.at(-1)[1].toFixed(3)}, best validation ${best}.`;
  const picture = svg(
    "svg",
    { class: "curve", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words },
    svg("line", { x1: left, x2: width - 8, y1: height - bottom, y2: height - bottom }),
    path(smooth, "train"),
    path(valid, "valid"),
    ...valid.map(([step, loss]) => svg("circle", { cx: x(step), cy: y(loss), r: 3 })),
    label(high.toFixed(2), [left - 6, 14], "end"),
    label(low.toFixed(2), [left - 6, height - bottom - 4], "end"),
    label("0", [left, height - 6], "start"),
    label(`step ${lastStep.toLocaleString("en")}`, [width - 8, height - 6], "end"),
  );
  const key = (kind, text) => make("span", { class: "key" }, make("i", { class: `swatch ${kind}` }), text);
  return make("div", {}, picture, make("p", { class: "keys" }, key("synthetic", "validation rows"), key("real", "training rows")));
}
