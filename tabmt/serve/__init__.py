"""The page and its HTTP API: `tabmt serve`. Nothing but the command imports this folder."""
