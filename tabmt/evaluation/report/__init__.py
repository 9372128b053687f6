"""The HTML report: page, pictures and the verdict in words."""
