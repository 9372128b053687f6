"""The seven invariants of normal traffic (Ring et al. 2019), as rules over the fields of a flow."""

INTERNAL = r"'192\.168\..*'"

INVARIANTS = {
    "tcp flags": "if proto == 'UDP' then flags == '......'",
    "private ips": f"matches(src_ip, {INTERNAL}) or matches(dst_ip, {INTERNAL})",
    "tcp port": ("if src_port in ('80', '443') or dst_port in ('80', '443') then proto == 'TCP'"),
    "dns": "if src_port == '53' or dst_port == '53' then proto == 'UDP'",
    "valid values": r"not matches(src_ip, '(22[4-9]|23\d)\..*|.*\.255')",
    "netbios": (
        f"if dst_port in ('137', '138') then matches(src_ip, {INTERNAL}) "
        r"and matches(dst_ip, '192\.168\.\d+\.255')"
    ),
    "packet ratios": "bytes >= 42 * packets and bytes <= 65535 * packets",
}
