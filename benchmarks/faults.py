"""Kill the program and damage its files: it must not lose data, accept damage, hang or crash.

    python -m benchmarks.faults mutate --count 20000 --seed 0
    python -m benchmarks.faults kill --count 200 --seed 0

`mutate` reads damaged and hostile files and inputs (mutations.py) in a process of bounded memory
and time. `kill` ends fit, sample and impute at random moments by SIGKILL and SIGTERM, runs them
again, and compares with uninterrupted runs. Writes benchmarks/results/faults-mutate.json and
faults-kill.json; exits with 1 if there was a fault.
"""

import argparse
import atexit
import collections
import contextlib
import hashlib
import json
import os
import random
import resource
import select
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import run_info, save_result
from benchmarks.mutations import REFUSED, Target, Workshop
from tabmt import UserError
from tabmt.cli import main as tabmt
from tests.tables import mixed_frame

SECONDS = 20.0  # for one file; longer is a hang
MEMORY = 2**31  # bytes above what the process had; more is a fault
FAULTS = ("traceback", "hang", "memory", "crash", "accepted corruption")
FIT = ["--width", "16", "--depth", "1", "--heads", "2", "--batch-size", "64", "--threads", "1",
       "--precision", "float32", "--checkpoint-every", "0.1"]  # fmt: skip


# --- mutations -----------------------------------------------------------------------------


def outcome(target: Target, seed: int, number: int) -> tuple[str, str]:
    """The outcome of a mutation, and the last line of the traceback if it is a fault."""
    rng = random.Random(f"{seed}/{target.name}/{number}")
    try:
        return target.run(rng), ""
    except UserError as error:
        text = str(error)
        return ("traceback", f"empty sentence {text!r}") if not text.strip() else (REFUSED, "")
    except MemoryError:
        return "memory", "".join(traceback.format_exc().splitlines()[-3:])
    except Exception:
        lines = traceback.format_exc().splitlines()
        own = [line.strip() for line in lines if "/tabmt/" in line]
        return "traceback", f"{own[-1] if own else ''}: {lines[-1][:200]}"


def work(jobs: list[tuple[Target, int]], seed: int, pipe: int) -> None:
    """In a child process: do the jobs, and report the outcome of each."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    warnings.simplefilter("ignore")
    for target, number in jobs:
        result = outcome(target, seed, number)
        os.write(pipe, (json.dumps(result) + "\n").encode())


@contextlib.contextmanager
def ending(child: int) -> Iterator[None]:
    """Kill a child process at the end, if it still runs."""
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def guarded(jobs: list[tuple[Target, int]], seed: int) -> Iterator[tuple[str, str]]:
    """The outcomes of jobs, in processes that are replaced when they hang or crash."""
    position = 0
    while position < len(jobs):
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(receive)
            try:
                work(jobs[position : position + 2000], seed, send)
            finally:
                os._exit(0)
        os.close(send)
        end = min(position + 2000, len(jobs))
        with os.fdopen(receive, "rb") as pipe, ending(child):
            fault = ""
            while position < end and not fault:
                ready, _, _ = select.select([pipe], [], [], SECONDS)
                line = pipe.readline() if ready else b""
                if line:
                    yield tuple(json.loads(line))
                else:
                    fault = "crash" if ready else "hang"
                    yield fault, ""
                position += 1


def mutate(
    count: int, seed: int, only: str | None = None, seconds: float = float("inf")
) -> dict[str, Any]:
    """The outcomes of `count` mutations, or of as many as `seconds` allow, evenly over all targets,
    with the faults in full."""
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder), mixed_frame(120))
        targets = [t for t in workshop.targets() if only in (None, t.name)]
        jobs = [(targets[i % len(targets)], i // len(targets)) for i in range(count)]
        counts: dict[str, collections.Counter[str]] = {
            target.name: collections.Counter() for target in targets
        }
        faults = []
        started = time.monotonic()
        results = guarded(jobs, seed)
        for (target, number), (result, detail) in zip(jobs, results, strict=True):
            counts[target.name][result] += 1
            if result in FAULTS:
                faults.append({"target": target.name, "number": number, "fault": result,
                               "detail": detail})  # fmt: skip
            if time.monotonic() - started > seconds:
                results.close()
                break
        return {
            "seed": seed,
            "mutations": sum(c.total() for c in counts.values()),
            "seconds": round(time.monotonic() - started),
            "outcomes": {name: dict(sorted(c.items())) for name, c in counts.items()},
            "faults": faults,
        }


# --- kills ---------------------------------------------------------------------------------


def digest(path: Path) -> str:
    """Of the content of a file, or of all files of a folder that are not hidden."""
    if path.is_dir():
        inner = [digest(entry) for entry in sorted(path.iterdir()) if entry.name[0] not in "._"]
        return hashlib.sha256("".join(inner).encode()).hexdigest()
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextlib.contextmanager
def working_folder() -> Iterator[Path]:
    """A temporary folder that the end of a forked process does not remove."""
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def start(folder: Path, arguments: list[str]) -> int:
    """A command in a child process, in this folder. It is forked, so that nothing has to be
    imported again."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.chdir(folder)
        with open(folder / "messages", "a") as messages:
            os.dup2(messages.fileno(), 1)
            os.dup2(messages.fileno(), 2)
        tempfile.tempdir = str(folder / "tmp")
        torch.set_num_threads(1)
        tabmt(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        # As a process ends that was not forked: what is to be removed at exit is removed.
        atexit._run_exitfuncs()
        os._exit(code)


def ended(child: int, seconds: float) -> int | None:
    """The exit code of a process, minus the signal that ended it; None if it still runs."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


COMMANDS: dict[str, tuple[list[str], str]] = {  # the command, and what it writes
    "fit": (
        ["fit", "table.csv", "-o", "new.tabmt", *FIT, "--steps", "150"],
        "new.tabmt",
    ),
    "fit with a store": (
        ["fit", "parts", "-o", "new.tabmt", *FIT, "--steps", "60", "--store", "store"],
        "new.tabmt",
    ),
    "fit of files": (["fit", "parts", "-o", "new.tabmt", *FIT, "--steps", "60"], "new.tabmt"),
    "sample to a file": (
        ["sample", "good.tabmt", "-n", "15000", "-o", "rows.csv", "--seed", "3"],
        "rows.csv",
    ),
    "sample to a folder": (
        ["sample", "good.tabmt", "-n", "15000", "-o", "rows/", "--seed", "3"],
        "rows",
    ),
    "impute a file": (
        ["impute", "good.tabmt", "parts", "-o", "filled.parquet", "--seed", "3"],
        "filled.parquet",
    ),
    "impute to a folder": (
        ["impute", "good.tabmt", "parts", "-o", "filled/", "--seed", "3"],
        "filled",
    ),
}  # fmt: skip


def prepare(folder: Path) -> None:
    """Tables, and a model of them."""
    frame = mixed_frame(1200)
    (folder / "parts").mkdir()
    (folder / "tmp").mkdir()
    frame.to_csv(folder / "table.csv", index=False)
    for part in range(4):
        frame[part * 300 : (part + 1) * 300].to_csv(folder / "parts" / f"{part}.csv", index=False)
    child = start(folder, ["fit", "table.csv", "-o", "good.tabmt", *FIT, "--steps", "30"])
    assert ended(child, 300) == 0, (folder / "messages").read_text()


def content_of(path: Path) -> str:
    """What distinguishes outputs: of a model its rows, because its file contains times."""
    if path.suffix == ".tabmt":
        from tabmt import TabMT

        return TabMT.load(path).sample(50, seed=1).to_csv()
    return digest(path)


def leftovers(folder: Path) -> list[str]:
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.name.endswith((".part", ".lock", ".owner", ".checkpoint"))
        or path.name.startswith("tabmt-")
    ]


def open_to_others(folder: Path, output: Path) -> list[str]:
    """The files of a run that other users than its owner may read."""
    written = [output, *(output.rglob("*") if output.is_dir() else []), *folder.glob("store/*")]
    return [path.name for path in written if stat.S_IMODE(path.stat().st_mode) & 0o077]


def kill_once(
    base: Path, name: str, expected: str, seconds: float, rng: random.Random
) -> tuple[str, list[str]]:
    """Kill a command at a random moment and run it again; how it ended, and what was wrong."""
    wrong: list[str] = []
    arguments, output = COMMANDS[name]
    with working_folder() as temporary:
        folder = temporary / "run"
        shutil.copytree(base, folder)
        (folder / "messages").write_text("")
        inputs = {path: digest(folder / path) for path in ("table.csv", "parts", "good.tabmt")}
        child = start(folder, arguments)
        how = rng.choice((signal.SIGKILL, signal.SIGTERM))
        code = ended(child, rng.uniform(0.0, seconds))
        if code is None:
            os.kill(child, how)
            code = ended(child, 60)
        if code is None:
            os.kill(child, signal.SIGKILL)
            return "hang", [f"{name}: did not end after SIGTERM"]
        ending = {0: "was done before", -9: "SIGKILL", 143: "SIGTERM", -15: "SIGTERM"}.get(code)
        if ending is None or (code == -15 and "Interrupted" in (folder / "messages").read_text()):
            wrong.append(f"exit code {code}")
        target = folder / output
        if code == 143 and (left := [p for p in leftovers(folder) if "checkpoint" not in p]):
            wrong.append(f"SIGTERM left {left}")
        if target.is_file() and content_of(target) != expected:
            wrong.append("the output was there, but not complete")
        if code != 0:
            resume = ["--resume"] if (folder / "new.tabmt.checkpoint").exists() else []
            again = start(folder, [*arguments, *resume])
            if (code := ended(again, 300)) != 0:
                wrong.append(f"the second run ended with {code}")
        if not target.exists() or content_of(target) != expected:
            wrong.append("the second run did not give the rows of an undisturbed one")
        if left := leftovers(folder):
            wrong.append(f"the second run left {left}")
        if readable := open_to_others(folder, target):
            wrong.append(f"others may read {readable}")
        wrong += [
            f"{p} was changed" for p, before in inputs.items() if digest(folder / p) != before
        ]
        messages = (folder / "messages").read_text()
        if "Traceback" in messages:
            wrong.append("traceback: " + messages[messages.index("Traceback") :][-600:])
    return ending or "other", [f"{name}: {problem}" for problem in wrong]


def kill(count: int, seed: int, limit: float = float("inf")) -> dict[str, Any]:
    """How `count` killed runs, or as many as `limit` seconds allow, ended, and what was wrong."""
    rng = random.Random(seed)
    os.umask(0o022)
    endings: dict[str, collections.Counter[str]] = {}
    faults: list[str] = []
    started = time.monotonic()
    with working_folder() as temporary:
        base = temporary / "base"
        base.mkdir()
        prepare(base)
        expected, seconds = {}, {}
        for name, (arguments, output) in COMMANDS.items():
            folder = temporary / "undisturbed"
            shutil.copytree(base, folder)
            before = time.monotonic()
            child = start(folder, arguments)
            code = ended(child, 600)
            assert code == 0, (folder / "messages").read_text()
            seconds[name] = time.monotonic() - before
            expected[name] = content_of(folder / output)
            shutil.rmtree(folder)
        number = 0
        while sum(c["SIGKILL"] + c["SIGTERM"] for c in endings.values()) < count:
            if time.monotonic() - started > limit:
                break
            name = list(COMMANDS)[number % len(COMMANDS)]
            ending, wrong = kill_once(base, name, expected[name], seconds[name], rng)
            endings.setdefault(name, collections.Counter())[ending] += 1
            faults += wrong
            for problem in wrong:
                print(problem, flush=True)
            number += 1
    return {
        "seed": seed,
        "kills": sum(c["SIGKILL"] + c["SIGTERM"] for c in endings.values()),
        "seconds": round(time.monotonic() - started),
        "endings": {name: dict(c) for name, c in endings.items()},
        "faults": faults,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("mutate", "kill"))
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--only", help="mutate: only this kind of file or input")
    parser.add_argument("--no-save", action="store_true", help="do not write a result file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "mutate":
        result = mutate(options.count, options.seed, options.only, 60 * options.minutes)
    else:
        result = kill(options.count, options.seed, 60 * options.minutes)
    for fault in result["faults"][:60]:
        print(fault)
    print(json.dumps({k: v for k, v in result.items() if k != "faults"}, indent=1))
    if not options.no_save:
        save_result(
            f"faults-{options.what}", {**run_info("benchmarks.faults", Path(), 1), **result}
        )
    sys.exit(1 if result["faults"] else 0)


if __name__ == "__main__":
    main()
