"""A fitted model: how it is fitted, stored and used."""
