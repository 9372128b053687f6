"""One integer seed, split into named streams.

Each use of randomness has a stream of its own, named by what it is for and by its position
(a step, a chunk of rows), so that changing one use leaves the others as they were, and a resumed
run draws what an uninterrupted one would have drawn without storing any generator's state.
"""

import hashlib

import numpy as np


def derive(seed: int, *path: str | int) -> int:
    """A 63-bit seed for the stream `path` of `seed`."""
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def numpy_stream(seed: int, *path: str | int) -> np.random.Generator:
    return np.random.default_rng(derive(seed, *path))
