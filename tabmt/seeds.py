"""One integer seed, split into named streams of random numbers.

Each use of randomness has its own stream, named after its purpose and its position (a step, a
chunk of rows). So a change in one place does not affect the random numbers of the others, and a
resumed run draws the same numbers as an uninterrupted one without storing a generator's state.
"""

import hashlib

import numpy as np


def derive(seed: int, *path: str | int) -> int:
    """A 63-bit seed for the stream `path` of `seed`."""
    text = "/".join(str(name) for name in (seed, *path))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def numpy_stream(seed: int, *path: str | int) -> np.random.Generator:
    return np.random.default_rng(derive(seed, *path))
