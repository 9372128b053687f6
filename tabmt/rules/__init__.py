"""Relations between columns that every row must satisfy."""
