"""How good and how private is a synthetic table? Plain functions; they know nothing of networks.

view.py      how the metrics see a table: numbers, categories, and both as one matrix
neighbours.py  exact nearest neighbours in flat memory
fidelity.py  does it look like the real table?
utility.py   does a model trained on it work on real rows?
privacy.py   does it repeat or hug the training rows?
coverage.py  does it cover what is there, and nothing else?
validity.py  does it keep to types, ranges and the user's rules?
"""
