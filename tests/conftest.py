import numpy as np
import pytest
import torch

from tabmt.synthesizer import TabMT
from tests.tables import mixed_frame

torch.set_num_threads(1)

TINY = {"width": 16, "depth": 1, "heads": 2, "batch_size": 64, "eval_every": 20, "warmup": 5}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def fitted() -> TabMT:
    """A tiny model of `mixed_frame`, trained for a moment: shapes and types, not quality."""
    return TabMT(steps=40, **TINY).fit(mixed_frame())
