"""Differential privacy: the only code that reads a real table when a fit has an epsilon."""
