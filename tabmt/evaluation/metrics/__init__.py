"""How good and how private is a synthetic table? Plain functions that know nothing of networks.

encoder.py        how the metrics see a table: numbers, categories, and both as one matrix
neighbours.py     exact nearest neighbours in bounded memory
fidelity.py       does it look like the real table?
utility.py        does a model trained on it work on real rows?
privacy.py        how far is it from the training rows, and how many of them does it repeat?
attacks.py        what does an attacker find out about training rows, but not about other real rows?
repeated_rows.py  does it repeat training rows or ids beyond chance, also with noise?
significance.py   p-values, confidence intervals and the risk of an attack
coverage.py       does it cover the region of the real rows, and nothing else?
validity.py       does it keep to types, ranges and the user's rules?
"""
