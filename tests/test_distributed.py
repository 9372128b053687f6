"""Several processes train as one does: real gloo groups, no mocks."""

import dataclasses
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp

from tabmt import TabMT
from tabmt.config import NetworkConfig
from tabmt.method.distributed import Group
from tabmt.method.train import SavedRun, train
from tests.tables import mixed_frame
from tests.test_train import SHORT, make, table, weights

QUIET = NetworkConfig(network="any-order", width=16, depth=2, heads=2)
CONFIG = dataclasses.replace(SHORT, checkpoint_every=0.0)


def run(rank: int, size: int, folder: Path) -> None:
    """Train, and then again from the eighth step on: what both leave goes into the folder."""
    torch.set_num_threads(1)
    address = f"file://{folder}/group"
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=size)
    assert Group.current() == Group(rank, size)
    runs: dict[int, SavedRun] = {}

    def learn(name: str, before: SavedRun | None = None) -> None:
        net = make(QUIET)
        summary = train(
            net,
            table(50),
            table(20, seed=1),
            CONFIG,
            seed=3,
            resume=before,
            save=None if rank or before else lambda run: runs.__setitem__(run.state.step, run),
        )
        result = (weights(net), dataclasses.replace(summary, seconds=0.0))
        torch.save(result, folder / f"{name}-{rank}.pt")

    learn("whole")
    if runs:
        torch.save(runs, folder / "runs.pt")
    torch.distributed.barrier()
    learn("resumed", torch.load(folder / "runs.pt", weights_only=False)[8])
    torch.distributed.destroy_process_group()


def test_two_processes_train_as_one_and_resume(tmp_path):
    alone = make(QUIET)
    summary = train(alone, table(50), table(20, seed=1), CONFIG, seed=3)
    mp.spawn(run, (2, tmp_path), nprocs=2)
    (first, of_first), (second, of_second) = (
        torch.load(tmp_path / f"whole-{rank}.pt", weights_only=False) for rank in (0, 1)
    )
    assert of_first == of_second
    assert of_first.train_loss == pytest.approx(summary.train_loss, rel=1e-5)
    for name, tensor in weights(alone).items():
        assert torch.equal(first[name], second[name])
        found = first[name]
        if name.endswith("queries_keys_values.bias"):
            # Attention does not change with the keys' bias: its gradient is rounding alone, which
            # Adam makes large.
            found, tensor = (torch.cat([b[:16], b[32:]]) for b in (found, tensor))
        torch.testing.assert_close(found, tensor, rtol=1e-4, atol=1e-5)
    for rank in (0, 1):
        resumed, again = torch.load(tmp_path / f"resumed-{rank}.pt", weights_only=False)
        assert again == of_first
        assert all(torch.equal(resumed[name], first[name]) for name in first)


SMALL = ["--steps", "5", "--width", "16", "--depth", "1", "--heads", "2", "--threads", "1",
         "--no-calibrate-missing"]  # fmt: skip


def torchrun(table: str, folder: Path) -> str:
    """Fit a table by two processes; returns their log."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    tabmt = Path(sys.executable).parent / "tabmt"
    fit = ["--no-python", str(tabmt), "fit", table, "-o", "m.tabmt", *SMALL]
    done = subprocess.run([*start, *fit], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(TabMT.load(folder / "m.tabmt").sample(10, seed=0)) == 10
    return done.stderr


def test_torchrun_fits_and_one_process_writes(tmp_path):
    mixed_frame().to_csv(tmp_path / "people.csv", index=False)
    assert torchrun("people.csv", tmp_path).count("wrote m.tabmt") == 1


def test_one_of_several_processes_encodes_a_large_table(tmp_path):
    (tmp_path / "parts").mkdir()
    for number in range(2):
        mixed_frame().to_parquet(tmp_path / "parts" / f"{number}.parquet")
    assert torchrun("parts", tmp_path).count("encoded the table") == 1


def srun(folder: Path, tables: tuple[str, str]) -> list[tuple[int, str]]:
    """Without Slurm: two processes with the variables that srun sets, and how each ends."""
    tabmt = str(Path(sys.executable).parent / "tabmt")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "SLURM_STEP_NUM_TASKS": "2"}
    started = [
        subprocess.Popen(
            [tabmt, "fit", table, "-o", "m.tabmt", *SMALL],
            cwd=folder,
            env={**os.environ, **shared, "SLURM_PROCID": rank, "SLURM_LOCALID": rank},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, table in zip("01", tables, strict=True)
    ]
    logs = [process.communicate(timeout=300)[1] for process in started]
    return [(process.returncode, log) for process, log in zip(started, logs, strict=True)]


def test_processes_that_slurm_starts_find_each_other(tmp_path):
    mixed_frame().to_csv(tmp_path / "people.csv", index=False)
    ended = srun(tmp_path, ("people.csv", "people.csv"))
    assert [code for code, _ in ended] == [0, 0], ended
    assert ["wrote m.tabmt" in log for _, log in ended] == [True, False]


def test_a_process_does_not_wait_for_one_that_has_failed(tmp_path):
    """Slurm lets the others run on."""
    (tmp_path / "parts").mkdir()
    for number in range(2):
        mixed_frame().to_parquet(tmp_path / "parts" / f"{number}.parquet")
    (first, log), (second, mistake) = srun(tmp_path, ("parts", "nowhere/*.parquet"))
    assert second == 2 and "There are no files in 'nowhere/*.parquet'" in mistake
    assert first == 2, log
    assert "Another training process stopped with an error; see its output." in log
    assert not (tmp_path / "m.tabmt").exists()


def test_a_rank_without_an_address_trains_alone(tmp_path):
    mixed_frame().to_csv(tmp_path / "people.csv", index=False)
    tabmt = str(Path(sys.executable).parent / "tabmt")
    done = subprocess.run(
        [tabmt, "fit", "people.csv", "-o", "m.tabmt", *SMALL],
        cwd=tmp_path,
        env={**os.environ, "RANK": "0", "WORLD_SIZE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (
        "RANK is set, but other variables of torchrun are not; training in one process."
        in done.stderr
    )
