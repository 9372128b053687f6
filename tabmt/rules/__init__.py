"""What must hold between the columns of every row."""
