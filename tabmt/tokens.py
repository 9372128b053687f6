"""The one representation between tables and networks.

tokens: integers (rows, columns). A cell is a code 0 .. size-1 of its column, or MASK.
"""

MASK = -1
"""The token of a cell that is not known: the network sees the mask token, sampling fills it in."""
