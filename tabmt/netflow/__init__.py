"""Network flows as CIDDS-001 publishes them: read, split into fields, checked, and written back."""

from tabmt.netflow.cidds import read_flows, write_flows
from tabmt.netflow.fields import FIELDS, schema, to_fields, to_flows, write_fields
from tabmt.netflow.invariants import INVARIANTS

__all__ = [
    "FIELDS",
    "INVARIANTS",
    "read_flows",
    "schema",
    "to_fields",
    "to_flows",
    "write_fields",
    "write_flows",
]
