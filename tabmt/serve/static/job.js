// A job: how far it is, its curves, and the buttons that end or resume it.

import { call, make, say } from "/static/api.js";
import { curves } from "/static/charts.js";

const about = document.getElementById("job").dataset;
const isOpen = (state) => state === "queued" || state === "running";
const STAGES = {
  synthesize: ["reading", "fitting", "sampling", "evaluating"],
  fit: ["reading", "fitting"],
  evaluate: ["reading", "evaluating"],
  pareto: ["reading", "searching"],
}[about.kind];
const TITLES = {
  reading: "Read the table", fitting: "Fit the model", sampling: "Generate rows", evaluating: "Evaluate: compare with real rows and run attacks", searching: "Try temperatures",
};
const POLL = 1000;
const events = [];

// --- what is shown ---------------------------------------------------------------------------

function duration(seconds) {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

function details(event) {
  if (event.stage === "fitting" && event.step) {
    const valid = event.valid_loss === undefined ? "" : `, validation loss ${event.valid_loss.toFixed(3)}`;
    const left = event.seconds_left === undefined ? "" : ` At most ${duration(event.seconds_left)} left.`;
    return `Step ${event.step.toLocaleString("en")}, loss ${event.loss.toFixed(3)}${valid}.${left}`;
  }
  if (event.of) return `${event.rows.toLocaleString("en")} of ${event.of.toLocaleString("en")} ${event.stage === "searching" ? "trials" : "rows"}.`;
  if (event.metric) return `Measuring: ${event.metric}.`;
  return `${TITLES[event.stage] ?? event.stage}.`;
}

function showProgress(job) {
  const last = events.findLast((event) => event.stage);
  const progress = document.getElementById("progress");
  if (!progress) return;
  const stage = STAGES.indexOf(last?.stage);
  document.getElementById("stages").replaceChildren(
    ...STAGES.map((name, index) => make("li", { class: index < stage ? "done" : undefined, "aria-current": index === stage && "step" }, TITLES[name])),
  );
  if (last?.share === undefined) progress.removeAttribute("value");
  else progress.value = last.share;
  const words = document.getElementById("details");
  const text = job.state === "queued" ? "Waiting for another job to end." : last ? details(last) : "Starting.";
  const stopping = job.is_stopping && last?.stage === "fitting" ? " Stopping; the model so far is kept." : "";
  say(words, text + stopping);
  const stop = document.querySelector("[data-action=stop]");
  if (stop) stop.disabled = !job.can_stop || last?.stage !== "fitting";
}

function showRest() {
  const steps = events.filter((event) => event.step);
  document.getElementById("curves").hidden = steps.length < 2;
  if (steps.length >= 2) document.getElementById("curve").replaceChildren(curves(steps));
  const messages = [...new Set(events.filter((event) => event.message).map((event) => event.message))];
  document.getElementById("messages").hidden = !messages.length;
  document.getElementById("message-list").replaceChildren(...messages.map((message) => make("li", {}, message)));
}

// --- following -------------------------------------------------------------------------------

async function follow() {
  try {
    const job = await call("GET", `/api/jobs/${about.id}?after=${events.length}`);
    events.push(...job.events);
    if (isOpen(about.state) && !isOpen(job.state)) return window.location.reload();
    if (job.state === "running" && about.state === "queued") {
      about.state = "running";
      document.getElementById("state").replaceChildren(make("span", { class: "badge running" }, "running"));
    }
    showProgress(job);
    showRest();
    if (!isOpen(job.state)) return;
  } catch (error) {
    if (error.status === 401 || error.status === 403 || error.status === 404) return;
  }
  setTimeout(follow, POLL);
}

for (const button of document.querySelectorAll("[data-action]")) {
  button.addEventListener("click", async () => {
    const status = document.getElementById("action-status");
    button.disabled = true;
    try {
      await call("POST", `/api/jobs/${about.id}/${button.dataset.action}`);
      if (button.dataset.action === "resume") window.location.reload();
      else say(status, button.dataset.action === "stop" ? "Stopping the training; the job continues with the next stage." : "Cancelling.");
    } catch (error) {
      say(status, error.message, "wrong");
      button.disabled = false;
    }
  });
}
follow();
