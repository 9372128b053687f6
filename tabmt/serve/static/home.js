// The start: a dropped or chosen file is uploaded, and its columns are shown.

import { alertPerson, call, say, upload } from "/static/api.js";

const zone = document.getElementById("drop");
const input = document.getElementById("file");
const status = document.getElementById("upload-status");
const box = document.getElementById("upload");
const bar = document.getElementById("upload-progress");

async function take(files) {
  if (!files.length) return;
  if (files.length > 1) return say(status, "Drop only one file.", "wrong");
  const [file] = files;
  box.hidden = false;
  input.disabled = true;
  say(status, `Uploading ${file.name}.`);
  try {
    const made = await upload(file, (share) => {
      bar.value = share;
      if (share >= 1) say(status, `Reading ${file.name}.`);
    });
    window.location.assign(`/tables/${made.id}`);
  } catch (error) {
    box.hidden = true;
    input.disabled = false;
    input.value = "";
    say(status, error.message, "wrong");
  }
}

input.addEventListener("change", () => take(input.files));
// A file that misses the zone must not replace the page.
for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
for (const name of ["dragenter", "dragover"]) zone.addEventListener(name, () => zone.classList.add("over"));
for (const name of ["dragleave", "drop"]) zone.addEventListener(name, () => zone.classList.remove("over"));
zone.addEventListener("drop", (event) => take(event.dataTransfer.files));

for (const button of document.querySelectorAll("[data-delete]")) {
  button.addEventListener("click", async () => {
    if (!window.confirm(`Delete ${button.dataset.what}?`)) return;
    try {
      await call("DELETE", button.dataset.delete);
      button.closest("tr").remove();
    } catch (error) {
      alertPerson(error.message);
    }
  });
}
