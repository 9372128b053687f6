"""Tables: files, data frames, schemas, and what counts as a number, a date or a missing value."""
