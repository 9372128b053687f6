// A model: conditions on columns, how they change all others, and the rows to download.

import { alertPerson, call, make, rows, say, table } from "/static/api.js";
import { bars, histogram } from "/static/charts.js";

const id = document.getElementById("model").dataset.id;
const path = `/api/models/${id}`;
const by = (name) => document.getElementById(name);
const status = by("status");
const PREVIEW_ROWS = 1000;
const WAIT = 250; // milliseconds after the last change

let columns = []; // as the model is, without conditions
let drawn = []; // the same with conditions
let front = null;
const where = {}; // column -> condition, as the API takes it
const temperatures = {}; // of single columns
let refused = ""; // why rows with these conditions cannot be generated
let running = null;
let timer = null;

// --- requests --------------------------------------------------------------------------------

function drawing() {
  const body = {};
  if (Object.keys(where).length) body.where = where;
  if (by("dial") && Number(by("dial").value) > 0) body.point = Number(by("dial").value);
  if (by("temperature")) {
    const all = Number(by("temperature").value);
    if (Object.keys(temperatures).length) {
      body.temperature = Object.fromEntries(learned().map((column) => [column.name, temperatures[column.name] ?? all]));
    } else if (all !== 1) body.temperature = all;
  }
  return body;
}

const learned = () => columns.filter((column) => column.form !== "fixed");
const count = () => Math.max(1, Math.round(Number(by("rows").value) || 0));
const seed = () => Math.max(0, Math.round(Number(by("seed").value) || 0));

function showDownload() {
  const body = { ...drawing(), rows: count(), seed: seed(), format: by("format").value };
  if (by("complete-rows").checked) body.allow_missing = false;
  if (by("escape").checked) body.escape_formulas = true;
  by("download").href = `${path}/sample?request=${encodeURIComponent(JSON.stringify(body))}`;
  by("download-count").textContent = count().toLocaleString("en");
}

async function update() {
  running?.abort();
  const own = (running = new AbortController());
  by("columns").setAttribute("aria-busy", "true");
  by("columns").classList.add("busy");
  try {
    const asked = drawing();
    const body = { ...asked, rows: PREVIEW_ROWS, seed: seed(), download_rows: count() };
    const answer = await call("POST", `${path}/distributions`, body, own.signal);
    refused = "";
    drawn = Object.keys(asked).length ? answer.columns : columns; // without a wish, green is grey
    document.querySelector("[data-command]").textContent = answer.command;
    document.querySelector("[data-python]").textContent = answer.python;
    by("prompted").replaceChildren(table(answer.rows));
    showColumns();
    say(status, `The charts show rows ${described(asked)}.`);
  } catch (error) {
    if (error.name === "AbortError") return;
    refused = [401, 403, 422].includes(error.status) ? error.message : "";
    say(status, error.message, "wrong");
  }
  by("columns").setAttribute("aria-busy", "false");
  by("columns").classList.remove("busy");
}

function described({ where: conditions = {}, ...temperature }) {
  const number = Object.keys(conditions).length;
  if (number) return number === 1 ? "with your condition" : `with your ${number} conditions`;
  return Object.keys(temperature).length ? "with your temperatures" : "without conditions";
}

function changed() {
  showChips();
  showDownload();
  clearTimeout(timer);
  timer = setTimeout(update, WAIT);
}

// A link would save the refusal as a file, or say nothing.
by("download").addEventListener("click", (event) => {
  const isValid = ["rows", "seed"].every((name) => by(name).reportValidity());
  if (isValid && !refused) return;
  event.preventDefault();
  if (isValid) alertPerson(refused);
});

// --- conditions ------------------------------------------------------------------------------

function set(name, condition) {
  if (condition === null) delete where[name];
  else where[name] = condition;
  showColumns();
  changed();
}

const valuesOf = (condition) => (condition?.one_of ? condition.one_of : condition?.equals !== undefined ? [condition.equals] : []);

function toggle(name, value) {
  const values = valuesOf(where[name]);
  const next = values.includes(value) ? values.filter((other) => other !== value) : [...values, value];
  if (!next.length) set(name, null);
  else set(name, next.length === 1 ? { equals: next[0] } : { one_of: next });
}

function choose(name, low, high) {
  const condition = {};
  if (low !== null) condition.low = low;
  if (high !== null) condition.high = high;
  set(name, Object.keys(condition).length ? condition : null);
}

function words(name, condition) {
  if (condition.missing !== undefined) return `${name} ${condition.missing ? "missing" : "not missing"}`;
  const values = valuesOf(condition);
  if (values.length) return `${name}: ${values.join(" or ")}`;
  if (condition.low === undefined) return `${name} up to ${condition.high}`;
  if (condition.high === undefined) return `${name} from ${condition.low}`;
  return `${name} from ${condition.low} to ${condition.high}`;
}

function showChips() {
  const chips = Object.entries(where).map(([name, condition]) => {
    const text = words(name, condition);
    return make("li", {}, make("button", { type: "button", "aria-label": `Remove the condition ${text}`, onclick: () => set(name, null) }, text));
  });
  by("chips").replaceChildren(...chips);
}

// --- columns ---------------------------------------------------------------------------------

// Pictures are replaced; the element that has the focus keeps it.
function showColumns() {
  const focused = document.activeElement?.dataset?.key;
  by("columns").replaceChildren(...columns.map((column, index) => card(column, drawn[index])));
  if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

function card(column, share) {
  const { name } = column;
  const box = make("section", { class: name in where ? "card chosen" : "card", "aria-label": name, "data-column": name }, make("h3", {}, name));
  if (column.form === "categories") {
    box.append(bars(column, share, { isChosen: (value) => valuesOf(where[name]).includes(value), toggle: (value) => toggle(name, value) }));
    for (const bar of box.querySelectorAll(".bar")) bar.dataset.key = `${name}=${bar.dataset.value}`;
  } else if (column.form === "fixed") {
    box.append(make("p", { class: "soft" }, column.kind === "id" ? "Newly generated for each row." : "The same in each row."));
    return box;
  } else box.append(...numbers(column, share));
  if (column.can_be_missing) box.append(...missingButtons(column, share));
  return box;
}

function numbers(column, share) {
  const { name } = column;
  const condition = where[name] ?? {};
  const [low, high] = [condition.low, condition.high];
  const isRange = low !== undefined || high !== undefined;
  const at = (value) => (value === undefined ? null : column.form === "numbers" ? Number(value) : edgeOf(column, value));
  const picture = histogram(column, share, { range: isRange && [at(low), at(high)], choose: (from, to) => choose(name, from, to) });
  const end = (label, value, other) => {
    const input = make("input", {
      type: column.form === "numbers" ? "number" : "text", step: "any", value: value ?? undefined, "data-key": `${name} ${label}`,
      placeholder: String(column.values.at(label === "from" ? 0 : -1)), "aria-label": `${name} ${label}`,
    });
    input.addEventListener("change", () => {
      const given = input.value.trim() === "" ? null : column.form === "numbers" ? Number(input.value) : input.value.trim();
      if (label === "from") choose(name, given, other ?? null);
      else choose(name, other ?? null, given);
    });
    return make("label", {}, label, input);
  };
  const axis = make("div", { class: "axis", "aria-hidden": "true" }, make("span", {}, String(column.values[0])), make("span", {}, String(column.values.at(-1))));
  return [picture, axis, make("div", { class: "ends" }, end("from", low, high), end("to", high, low))];
}

function edgeOf(column, value) {
  const index = column.values.indexOf(value);
  const parsed = Date.parse(`${value}${/T/.test(value) ? "Z" : ""}`);
  return index >= 0 ? column.edges[index] : Number.isNaN(parsed) ? null : parsed;
}

function missingButtons(column, share) {
  const { name } = column;
  const current = where[name]?.missing;
  const button = (label, wanted) =>
    make("button", { type: "button", class: "small", "aria-pressed": String(current === wanted), "data-key": `${name} ${label}`, "aria-label": `${name} ${label}`,
      onclick: () => set(name, current === wanted ? null : { missing: wanted }) }, label);
  return [button("missing", true), button("not missing", false), make("span", { class: "soft" }, `${(100 * share.missing).toFixed(1)}% missing`)];
}

// --- privacy ---------------------------------------------------------------------------------

function setUpDial() {
  const dial = by("dial");
  const number = (value) => (value === null ? "not measured" : value.toFixed(3));
  dial?.addEventListener("input", () => {
    const point = front.points[Number(dial.value) - 1];
    const { privacy, quality } = dial.dataset;
    by("dial-words").textContent = point ? `Point ${point.point} of ${front.points.length}: ${privacy}: ${number(point.privacy)}; ${quality}: ${number(point.quality)}.` : "The temperatures of the model.";
    dial.setAttribute("aria-valuetext", by("dial-words").textContent);
    changed();
  });
  by("temperature")?.addEventListener("input", () => {
    by("temperature-value").textContent = Number(by("temperature").value).toFixed(2);
    changed();
  });
  by("temperatures")?.replaceChildren(...learned().map((column) => {
    const input = make("input", { type: "number", min: "0", max: "10", step: "0.05", placeholder: "same as all" });
    input.addEventListener("input", () => {
      if (input.value === "") delete temperatures[column.name];
      else temperatures[column.name] = Number(input.value);
      changed();
    });
    return make("label", {}, column.name, input);
  }));
  by("search")?.addEventListener("click", async () => {
    by("search").disabled = true;
    try {
      const job = await call("POST", "/api/jobs", { kind: "pareto", model: id });
      window.location.assign(`/jobs/${job.id}`);
    } catch (error) {
      say(status, error.message, "wrong");
      by("search").disabled = false;
    }
  });
}

// --- cells -----------------------------------------------------------------------------------

function setUpCells() {
  by("cells").replaceChildren(...columns.map((column) => {
    const list = column.form === "categories" ? `values-${column.name}` : undefined;
    const input = make("input", { name: column.name, placeholder: "?", list, autocomplete: "off" });
    const label = make("label", {}, column.name, input);
    if (list) label.append(make("datalist", { id: list }, ...column.values.map((value) => make("option", { value }))));
    return label;
  }));
  by("write").addEventListener("submit", async (event) => {
    event.preventDefault();
    const cells = {};
    for (const [name, text] of new FormData(by("write"))) {
      if (text.trim() !== "" && text.trim() !== "?") cells[name] = text;
    }
    say(by("write-status"), "Completing.");
    try {
      const { where: _, ...how } = drawing();
      const body = { ...how, rows: Array(5).fill(cells), seed: seed() };
      by("written").replaceChildren(table(await rows(`${path}/complete`, body)));
      by("written").hidden = false;
      by("cells-commands").hidden = !Object.keys(cells).length;
      if (Object.keys(cells).length) {
        const same = await call("POST", `${path}/complete/commands`, body);
        document.querySelector("[data-cells-command]").textContent = same.command;
        document.querySelector("[data-cells-python]").textContent = same.python;
      }
      say(by("write-status"), "Known cells stay as you wrote them.", "good");
    } catch (error) {
      say(by("write-status"), error.message, "wrong");
    }
  });
}

// --- start -----------------------------------------------------------------------------------

for (const name of ["rows", "seed", "format", "complete-rows", "escape"]) by(name).addEventListener("input", changed);
showChips();
showDownload();
try {
  const known = await call("GET", `${path}/columns`);
  ({ columns } = known);
  drawn = columns;
  if (by("dial")) front = { points: JSON.parse(by("dial").dataset.points) };
  by("unprompted").replaceChildren(table(known.rows));
  showColumns();
  setUpDial();
  setUpCells();
  await update();
} catch (error) {
  by("columns").replaceChildren(make("p", {}, error.message));
  say(status, error.message, "wrong");
}
