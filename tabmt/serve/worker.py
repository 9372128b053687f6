"""The program of separate processes: a job, or a request for many rows.

    python -m tabmt.serve job FOLDER     python -m tabmt.serve rows

Both read instructions from standard input, and end when it is closed: no process outlives its
server. A job may read "stop" (end training, keep the model so far) or "cancel" (save the progress,
to resume later).
"""

import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tabmt.errors import Cancelled, UserError
from tabmt.json_files import json_text, parse_json, read_json
from tabmt.serve.requests import JobRequest, training_settings
from tabmt.writing import write_text

log = logging.getLogger(__name__)

NICE = 10  # small requests, which the server answers itself, have priority
EVENT_SECONDS = 0.25  # between two events of one stage, and later ...
EVENTS_PER_RUN = 400  # ... so far apart that a run has about this many
BUG = "Something went wrong in this program; errors.txt in the folder of the job says where."
DONE, FAILED, CANCELLED = 0, 2, 3  # exit codes


def main(arguments: list[str]) -> int:
    os.umask(0o077)
    if hasattr(os, "nice"):
        os.nice(NICE)
    if arguments[:1] == ["rows"]:
        return write_rows()
    return JobRun(Path(arguments[1])).run()


# --- jobs ----------------------------------------------------------------------------------


class JobRun:
    """One run of a job in its folder: events while it runs, and the outcome at its end."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._results = folder, folder / "results"
        stored = read_json(folder / "request.json", "request")
        self._request = JobRequest.model_validate(stored["request"])
        self._tables: dict[str, str] = stored["paths"]  # what the request names -> its file
        self._schema: dict[str, Any] | None = stored["schema"]
        self._names: dict[str, str] = stored["names"]  # paths -> names for people
        self._stop, self._cancel = threading.Event(), threading.Event()
        self._started = self._last = time.monotonic()
        self._stage, self._valid_loss = "", None

    def run(self) -> int:
        handler = EventHandler(self._event, self._public)
        root = logging.getLogger("tabmt")
        root.handlers[:] = [handler]
        root.setLevel(logging.WARNING)
        threading.Thread(target=self._listen, daemon=True).start()
        kinds: dict[str, Callable[[], None]] = {
            "fit": self._fit, "synthesize": self._synthesize,
            "evaluate": self._evaluate, "pareto": self._pareto,
        }  # fmt: skip
        try:
            kinds[self._request.kind]()
        except (Cancelled, KeyboardInterrupt):
            return CANCELLED
        except UserError as error:
            return self._failed(self._public(str(error)))
        except MemoryError:
            return self._failed("There is not enough memory for this table; use fewer rows.")
        except Exception:
            write_text(self._folder / "errors.txt", traceback.format_exc())
            return self._failed(BUG)
        self._event(stage="done", share=1.0)
        return DONE

    def _failed(self, sentence: str) -> int:
        write_text(self._folder / "error.json", json_text({"error": sentence}))
        return FAILED

    def _listen(self) -> None:
        """Read instructions; the end of the input means that the server has ended."""
        for line in sys.stdin:
            if line.strip() == "stop":
                self._stop.set()
            else:
                break
        self._cancel.set()

    def _public(self, sentence: str) -> str:
        """A sentence with the names of files in place of their paths."""
        for path, name in self._names.items():
            sentence = sentence.replace(path, name)
        return sentence.replace(f"{self._results}{os.sep}", "").replace(str(self._folder), "")

    # --- events ----------------------------------------------------------------------------

    def _event(self, **entries: Any) -> None:
        entries["seconds"] = round(time.monotonic() - self._started, 2)
        line = json.dumps({k: v for k, v in entries.items() if v is not None}) + "\n"
        with (self._folder / "events.ndjson").open("a", encoding="utf-8") as file:
            file.write(line)

    def _report(self, stage: str, share: float, details: Mapping[str, Any]) -> None:
        """Write progress events at intervals. Raises `Cancelled` if the job has to end."""
        if self._cancel.is_set():
            raise Cancelled
        now, valid_loss = time.monotonic(), details.get("valid_loss")
        wait = max(EVENT_SECONDS, (now - self._started) / EVENTS_PER_RUN)
        is_new = stage != self._stage or valid_loss != self._valid_loss or share >= 1
        if not is_new and now - self._last < wait:
            return
        self._stage, self._last, self._valid_loss = stage, now, valid_loss
        kept = ("step", "steps", "loss", "valid_loss", "seconds_left", "rows", "of", "metric")
        shown = {key: details[key] for key in kept if key in details}
        self._event(stage=stage, share=round(share, 4), **shown)

    # --- kinds of jobs ---------------------------------------------------------------------

    def _options(self) -> dict[str, Any]:
        request = self._request
        return {"seed": request.seed, "target": request.target, **training_settings(request)}

    def _synthesize(self) -> None:
        from tabmt.synthesis.synthesize import synthesize

        synthesize(
            self._tables["table"],
            self._results,
            rows=self._request.rows,
            schema=self._schema,
            max_risk=self._request.max_risk,
            progress=self._report,
            should_stop=self._stop.is_set,
            **self._options(),
        )

    def _fit(self) -> None:
        from tabmt.estimator import TabMT
        from tabmt.method.train import Progress
        from tabmt.writing import claimed, make_folder

        make_folder(self._results)
        checkpoint = self._results / "model.tabmt.checkpoint"

        def on_step(step: Progress) -> None:
            self._report("fitting", step.share, vars(step))

        self._report("reading", 0.0, {})
        with claimed(self._results, "The results"):
            model = TabMT(**self._options())
            model.fit(
                self._tables["table"],
                schema=self._schema,
                checkpoint=checkpoint,
                resume=checkpoint.exists(),
                on_step=on_step,
                should_stop=self._stop.is_set,
            )
            model.save(self._results / "model.tabmt")
            checkpoint.unlink(missing_ok=True)

    def _evaluate(self) -> None:
        from tabmt.evaluation.evaluate import Evaluator
        from tabmt.evaluation.report.report import write_report
        from tabmt.writing import make_folder

        make_folder(self._results)
        self._report("reading", 0.0, {})
        request = self._request
        evaluator = Evaluator.of(
            self._tables["train"],
            self._tables.get("test"),
            target=request.target,
            max_risk=request.max_risk,
            seed=request.seed,
        )

        def on_metric(share: float, title: str) -> None:
            self._report("evaluating", 0.9 * share, {"metric": title})

        path = self._tables["synthetic"]
        evaluated = evaluator.evaluate(path, self._names.get(path, "synthetic"), on_metric)
        self._report("evaluating", 0.9, {"metric": "report"})
        write_report(evaluator, [evaluated], self._results / "report.html")
        scores = json_text([evaluated.evaluation.to_json()], indent=2)
        write_text(self._results / "evaluation.json", scores + "\n")

    def _pareto(self) -> None:
        from tabmt.search.pareto import pareto
        from tabmt.writing import make_folder

        make_folder(self._results)
        request, tables = self._request, self._tables

        def on_trial(scores: np.ndarray, trials: int) -> None:
            self._report("searching", len(scores) / trials, {"rows": len(scores), "of": trials})

        self._report("reading", 0.0, {})
        front = pareto(
            tables["model"],
            tables["train"],
            tables["test"],
            request.target,
            trials=request.trials,
            minutes=request.minutes,
            sampler=request.sampler,
            privacy=request.privacy,
            quality=request.quality,
            storage=self._results / "front.trials",
            workers=1,
            seed=request.seed,
            on_trial=on_trial,
        )
        front.save(self._results / "front.json", force=True)


class EventHandler(logging.Handler):
    """Messages of the library as events."""

    def __init__(self, event: Callable[..., None], public: Callable[[str], str]) -> None:
        super().__init__()
        self._event, self._public = event, public

    def emit(self, record: logging.LogRecord) -> None:
        self._event(message=self._public(record.getMessage()))


# --- rows ----------------------------------------------------------------------------------


def write_rows() -> int:
    """Answer a request for many rows: a line of JSON, which may contain an error, and then the
    bytes of the file. Ends with the server, because the pipe then breaks."""
    from tabmt.estimator import TabMT
    from tabmt.search.pareto_front import Front
    from tabmt.serve import rows
    from tabmt.serve.formats import encode

    order = parse_json(sys.stdin.buffer.readline())
    output = sys.stdout.buffer
    logging.getLogger("tabmt").setLevel(logging.ERROR)
    try:
        request = rows.REQUESTS[order["what"]].model_validate(order["request"])
        model = TabMT.load(order["model"])
        front = None if order["front"] is None else Front.load(order["front"])
        table = None if order["table"] is None else Path(order["table"])
        found = rows.answer(model, request, front, table)
        pieces = encode(
            found.batches, found.schema, request.format, escape_formulas=request.escape_formulas
        )
        first = next(pieces, b"")  # an error is raised before anything is written
    except UserError as error:
        sentence = str(error)
        for path, name in order["names"].items():
            sentence = sentence.replace(path, name)
        output.write(json.dumps({"error": sentence}).encode() + b"\n")
        return FAILED
    try:
        output.write(b'{"ok": true}\n')
        output.write(first)
        for piece in pieces:
            output.write(piece)
        output.flush()
    except BrokenPipeError:  # the client has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CANCELLED
    return DONE
