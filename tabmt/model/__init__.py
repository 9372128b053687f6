"""A fitted model: how it is made, stored and used."""
