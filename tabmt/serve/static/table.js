// A table: its columns and their kinds, and the form that fits a model to it.

import { call, say } from "/static/api.js";

const about = document.getElementById("table").dataset;
const form = document.getElementById("learn");
const status = document.getElementById("learn-status");
const kindsStatus = document.getElementById("kinds-status");
const selects = [...document.querySelectorAll("select[data-column]")];
const chosen = {};

// --- kinds of columns ------------------------------------------------------------------------

// A kind that is chosen before this is answered waits for it: the page can be used at once.
const stored = call("GET", `/api/tables/${about.id}`).then((table) => {
  for (const [name, kind] of Object.entries(table.overrides)) chosen[name] ??= kind;
});

async function override(select) {
  const { column } = select.dataset;
  const before = select.dataset.kind;
  say(kindsStatus, `Reading ${column} again.`);
  for (const other of selects) other.disabled = true;
  try {
    await stored;
    const changed = await call("PUT", `/api/tables/${about.id}/kinds`, { kinds: { ...chosen, [column]: select.value } });
    chosen[column] = select.value;
    for (const entry of changed.schema.columns) show(entry);
    say(kindsStatus, `The kind of ${column} is now ${select.value}.`, "good");
  } catch (error) {
    select.value = before;
    say(kindsStatus, error.message, "wrong");
  }
  for (const other of selects) other.disabled = false;
  select.focus();
  showCommands();
}

function show(entry) {
  const select = selects.find((other) => other.dataset.column === entry.name);
  select.value = entry.kind;
  select.dataset.kind = entry.kind;
  for (const cell of document.querySelectorAll("[data-reason]")) {
    if (cell.dataset.reason === entry.name) cell.textContent = entry.reason;
  }
}

for (const select of selects) select.addEventListener("change", () => override(select));

// --- learning --------------------------------------------------------------------------------

function request(kind) {
  const data = new FormData(form);
  const number = (name) => (data.get(name) === "" ? null : Number(data.get(name)));
  const body = { kind, table: about.id, minutes: number("minutes"), seed: number("seed") ?? 0 };
  if (data.get("target")) body.target = data.get("target");
  if (number("protect") !== null && number("protect") !== Number(about.protect)) body.protect = number("protect");
  if (number("epsilon") !== null) body.epsilon = number("epsilon");
  if (kind === "synthesize") {
    if (number("rows") !== Number(about.rows)) body.rows = number("rows");
    if (number("max_risk") !== null) body.max_risk = number("max_risk") / 100;
  }
  return body;
}

const quoted = (text) => (/^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);

// The two buttons: all at once, or only the fit.
function showCommands() {
  const hasKinds = Object.keys(chosen).length > 0;
  const schema = JSON.stringify({ columns: Object.entries(chosen).map(([name, kind]) => ({ name, kind })) });
  const options = (kind) => Object.entries(request(kind)).filter(([name]) => !["kind", "table"].includes(name));
  const command = (kind) => {
    const given = options(kind).filter(([name, value]) => !(name === "seed" && value === 0));
    const words = given.map(([name, value]) => `--${name.replace("_", "-")} ${quoted(String(value))}`);
    return ["tabmt", kind, quoted(about.name), ...words, ...(hasKinds ? ["--schema schema.json"] : [])].join(" ");
  };
  const named = (kind) => options(kind).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  const table = [JSON.stringify(about.name), ...(hasKinds ? [`schema=${schema}`] : [])];
  const written = hasKinds ? `printf '%s\\n' ${quoted(schema)} > schema.json\n` : "";
  form.querySelector("[data-command]").textContent = `${written}${command("synthesize")}\n\n# Only fit:\n${command("fit")}`;
  form.querySelector("[data-python]").textContent =
    `import tabmt\n\nresult = tabmt.synthesize(${[...table, ...named("synthesize")].join(", ")})\nprint(result.verdict)\n\n` +
    `# Only fit:\nmodel = tabmt.TabMT(${named("fit").join(", ")}).fit(${table.join(", ")})\nmodel.save("model.tabmt")`;
}

form.addEventListener("input", showCommands);
showCommands();

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const buttons = [...form.querySelectorAll("button")];
  for (const button of buttons) button.disabled = true;
  say(status, "Starting.");
  try {
    const job = await call("POST", "/api/jobs", request(event.submitter?.value ?? "synthesize"));
    window.location.assign(`/jobs/${job.id}`);
  } catch (error) {
    say(status, error.message, "wrong");
    for (const button of buttons) button.disabled = false;
  }
});

// --- evaluating ------------------------------------------------------------------------------

function setUpEvaluation() {
  const own = document.getElementById("evaluate");
  const button = own.querySelector("button");
  if (!button) return; // there is no other table
  const nameOf = (select) => own.elements[select].selectedOptions[0].textContent;
  const inputs = () => ["train", "test"].filter((name) => own.elements[name].value);
  const show = () => {
    const target = own.elements.target.value;
    const words = inputs().map((name) => `--${name} ${quoted(nameOf(name))}`);
    if (target) words.push(`--target ${quoted(target)}`);
    own.querySelector("[data-evaluate-command]").textContent = ["tabmt evaluate", quoted(about.name), ...words, "--report report.html"].join(" ");
    const values = [about.name, ...inputs().map(nameOf)].map((name) => JSON.stringify(name));
    if (target) values.push(`target=${JSON.stringify(target)}`);
    own.querySelector("[data-evaluate-python]").textContent = `import tabmt\n\nscores = tabmt.evaluate(${values.join(", ")})\nprint(scores.privacy.outcome)`;
  };
  own.addEventListener("input", show);
  show();
  own.addEventListener("submit", async (event) => {
    event.preventDefault();
    const ownStatus = document.getElementById("evaluate-status");
    const body = { kind: "evaluate", synthetic: about.id };
    for (const [name, value] of new FormData(own)) if (value) body[name] = value;
    button.disabled = true;
    say(ownStatus, "Starting.");
    try {
      const job = await call("POST", "/api/jobs", body);
      window.location.assign(`/jobs/${job.id}`);
    } catch (error) {
      say(ownStatus, error.message, "wrong");
      button.disabled = false;
    }
  });
}

setUpEvaluation();
