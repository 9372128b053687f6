"""What users ask of the rows that they get."""
