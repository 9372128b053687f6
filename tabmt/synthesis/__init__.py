"""From a table to synthetic rows and a verdict on them, in one folder."""
