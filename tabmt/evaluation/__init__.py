"""How good and how private a synthetic table is."""
