"""A table as one matrix of integers, and back."""
