"""Relations between columns that hold in all rows of a table, or in all but a few."""
