import hypothesis
import numpy as np
import pytest
import torch

from tabmt.estimator import TabMT
from tabmt.evaluation.metrics import fidelity
from tests.tables import mixed_frame

torch.set_num_threads(1)
fidelity.DETECTOR_ROWS = 1  # thirty detectors for each small table would be most of the time

# The same examples in every run, so that a change fails by its own doing. To search for new ones:
# pytest --hypothesis-profile search
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.register_profile("search", derandomize=False, max_examples=2000, deadline=None)
hypothesis.settings.load_profile("same")

# A network that is trained in a moment. The calibration would take several times as long; tests
# of it, of the defaults and of the golden values have it on.
TINY = {
    "width": 16, "depth": 1, "heads": 2, "batch_size": 64, "eval_every": 20, "warmup": 2,
    "calibrate_missing": False,
}  # fmt: skip


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def fitted() -> TabMT:
    """A tiny model of `mixed_frame`, trained for a moment: shapes and types, not quality."""
    return TabMT(steps=40, **TINY).fit(mixed_frame())
