"""TabularARGN with its differential privacy: a fifth of epsilon for values and ranges, as much as
it then takes for DP-SGD. Epsilon and delta come from the variables of benchmarks/private.py."""

import os

import pandas as pd
import torch
from mostlyai.engine import TabularARGN, set_random_state
from mostlyai.engine.domain import DifferentialPrivacyConfig

from benchmarks.peers.argn import PACKAGES, Model, sample
from benchmarks.peers.frames import as_text

__all__ = ["PACKAGES", "fit", "sample"]
VALUES_SHARE = 0.2  # of epsilon


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    torch.set_num_threads(1)
    set_random_state(seed)
    epsilon, delta = (float(os.environ[f"TABMT_{key}"]) for key in ("EPSILON", "DELTA"))
    privacy = DifferentialPrivacyConfig(
        max_epsilon=(1 - VALUES_SHARE) * epsilon,
        delta=delta,
        value_protection_epsilon=VALUES_SHARE * epsilon,
    )
    model = TabularARGN(
        device="cpu", verbose=0, max_training_time=seconds / 60, differential_privacy=privacy
    )
    model.fit(as_text(train))
    return Model(model, train)
