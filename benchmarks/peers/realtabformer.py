"""REaLTabFormer of the package of that name, with a smaller network, stopped when the time is over.

Its default, a GPT-2 of six layers that are 768 wide, makes a few steps in minutes on one thread, so
this one has three layers that are 128 wide and a higher rate. Overfitting is noticed by validation
rows: the package's own test of it generates rows for hours.
"""

import tempfile
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from realtabformer import REaLTabFormer
from transformers import GPT2Config
from transformers.trainer_callback import DefaultFlowCallback

from benchmarks.peers.frames import as_text, restore

PACKAGES = ("realtabformer", "transformers", "torch")
LAYERS, WIDTH, HEADS = 3, 128, 4
EPOCHS, BATCH, RATE = 1000, 64, 1e-3


@dataclass(frozen=True)
class Model:
    model: Any
    train: pd.DataFrame
    steps: int
    epochs: float


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    stop_at(time.monotonic() + seconds)
    np.random.seed(seed)
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        model = REaLTabFormer(
            model_type="tabular",
            tabular_config=GPT2Config(n_layer=LAYERS, n_embd=WIDTH, n_head=HEADS),
            checkpoints_dir=f"{folder}/checkpoints", samples_save_dir=f"{folder}/samples",
            full_save_dir=f"{folder}/full", epochs=EPOCHS, batch_size=BATCH, train_size=0.95,
            random_state=seed, gradient_accumulation_steps=1, learning_rate=RATE,
            lr_scheduler_type="constant", use_cpu=True, report_to="none", seed=seed,
        )  # fmt: skip
        trainer = model.fit(as_text(train), device="cpu", n_critic=0)
    return Model(model, train, trainer.state.global_step, float(trainer.state.epoch or 0))


def stop_at(deadline: float) -> None:
    """Let every training of `transformers` end after the step at which the time is over."""
    decide = DefaultFlowCallback.on_step_end

    def on_step_end(self: Any, args: Any, state: Any, control: Any, **others: Any) -> Any:
        control = decide(self, args, state, control, **others)
        if time.monotonic() > deadline:
            control.should_training_stop = True
        return control

    DefaultFlowCallback.on_step_end = on_step_end


def sample(model: Model, rows: int, seed: int) -> pd.DataFrame:
    np.random.seed(seed)
    torch.manual_seed(seed)
    drawn = model.model.sample(n_samples=rows, gen_batch=min(rows, 512), device="cpu")
    return restore(drawn.head(rows), model.train)


def about(model: Model) -> dict[str, Any]:
    cut = [f"a GPT-2 of {LAYERS} layers and width {WIDTH} instead of 6 and 768"]
    if model.epochs < EPOCHS:
        cut.append(f"{model.epochs:.0f} of {EPOCHS} epochs, ended by time or early stopping")
    return {"steps": model.steps, "epochs": model.epochs, "rate": RATE, "cut": cut}
