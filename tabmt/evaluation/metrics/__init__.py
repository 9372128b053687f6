"""How good and how private is a synthetic table? Plain functions that know nothing of networks.

encoder.py     how the metrics see a table: numbers, categories, and both as one matrix
neighbours.py  exact nearest neighbours in bounded memory
fidelity.py    does it look like the real table?
utility.py     does a model trained on it work on real rows?
privacy.py     does it repeat training rows, or come closer to them than fresh rows do?
coverage.py    does it cover what there is, and nothing else?
validity.py    does it keep to types, ranges and the user's rules?
"""
