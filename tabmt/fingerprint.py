"""A short digest of data, to recognise the same run when it is resumed; not for other purposes."""

import hashlib
import json
from typing import Any

import numpy as np


def fingerprint(*parts: Any) -> str:
    """A digest of arrays and of values that can be written as JSON, in this order."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(json.dumps(part, sort_keys=True).encode())
    return digest.hexdigest()
