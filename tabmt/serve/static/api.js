// Calls of the API, and what every page needs to say that one went wrong.

const csrf = document.querySelector("meta[name=csrf]").content;
const UNREACHABLE = "The server cannot be reached. Is tabmt serve still running?";
const LOGGED_OUT =
  "This page is no longer logged in, or the server was started again. Open the address that tabmt serve has printed.";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function alertPerson(message) {
  const box = document.getElementById("alert");
  box.textContent = message;
  box.hidden = !message;
}

async function failure(response) {
  let sentence = `The server answered with ${response.status}.`;
  try {
    sentence = (await response.json()).error ?? sentence;
  } catch {
    // The sentence above is all that is known.
  }
  if (response.status === 401 || (response.status === 403 && /token/.test(sentence))) {
    alertPerson(LOGGED_OUT);
    sentence = "This page is logged out.";
  }
  return new ApiError(response.status, sentence);
}

async function send(method, path, body, signal) {
  const headers = { "X-TabMT-CSRF": csrf };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    const options = { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) };
    const response = await fetch(path, options);
    if (response.ok) {
      alertPerson("");
      return response;
    }
    throw await failure(response);
  } catch (error) {
    if (error instanceof ApiError || error.name === "AbortError") throw error;
    alertPerson(UNREACHABLE);
    throw new ApiError(0, UNREACHABLE);
  }
}

export async function call(method, path, body, signal) {
  const response = await send(method, path, body, signal);
  return response.status === 204 ? null : response.json();
}

// Rows come as one JSON object a line.
export async function rows(path, body) {
  const text = await (await send("POST", path, body)).text();
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

// fetch does not tell how much is sent, so an upload is an XMLHttpRequest.
export function upload(file, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", `/api/tables?name=${encodeURIComponent(file.name)}`);
    request.setRequestHeader("X-TabMT-CSRF", csrf);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.onprogress = (event) => onProgress(event.loaded / Math.max(event.total, 1));
    request.onerror = () => reject(new ApiError(0, UNREACHABLE));
    request.onload = async () => {
      if (request.status === 201) resolve(JSON.parse(request.responseText));
      else reject(await failure(new Response(request.responseText, { status: request.status })));
    };
    request.send(file);
  });
}

export function say(element, message, kind = "") {
  element.textContent = message;
  element.className = `status ${kind}`;
}

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

export function table(rowsToShow) {
  if (!rowsToShow.length) return make("p", { class: "soft" }, "No rows.");
  const names = Object.keys(rowsToShow[0]);
  const isNumber = (name) => rowsToShow.some((row) => typeof row[name] === "number");
  const cell = (row, name) => {
    const value = row[name];
    const content = value === null ? make("i", { class: "missing" }, "missing") : String(value);
    return make("td", { class: isNumber(name) ? "n" : undefined }, content);
  };
  const head = make("tr", {}, ...names.map((name) => make("th", { scope: "col", class: isNumber(name) ? "n" : undefined }, name)));
  const lines = rowsToShow.map((row) => make("tr", {}, ...names.map((name) => cell(row, name))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...lines));
}
