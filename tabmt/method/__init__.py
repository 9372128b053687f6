"""The paper's method and the faster network: integers in, integers out."""
