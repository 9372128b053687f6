"""Searches on top of a fitted model: temperatures (`pareto`) and settings (`tune`), on Optuna."""
