"""Generators behind one protocol, each one module that runs in its own environment.

A peer has two functions, and the names of the packages whose versions are reported:

    PACKAGES = ("ctgan", "torch")
    fit(train: DataFrame, target: str | None, seconds: float, seed: int) -> model
    sample(model, rows: int, seed: int) -> DataFrame

Columns of pandas' category type are categories (of text, which Parquet files keep), all others are
numbers. `fit` has to end within
about `seconds` of wall time with one thread. A third function, `about(model)`, may return JSON: the
settings, and under "cut" what was not done as the package or the paper does by default. `driver`
runs a peer, `catalogue` lists them, `environments` installs what they need.
"""
