"""Figures of the TabMT paper (NeurIPS 2023), as it prints them: plain data, each with its table.

Datasets have the paper's two- or three-letter codes; `TableInfo.code` in benchmarks/datasets.py has
the code of each table. A score of ML efficiency (MLE) is macro F1 or R2.
"""

# Table 1: MLE and its standard deviation. None where the paper prints a dash; MLE lacks those.
METHODS = ("TVAE", "CTabGAN+", "RealTabFormer", "TabDDPM", "TabMT", "Real")
_TABLE_1 = {
    "AB": ((0.433, 0.008), (0.467, 0.004), (0.504, 0.011),
           (0.550, 0.010), (0.535, 0.004), (0.556, 0.004)),
    "AD": ((0.781, 0.002), (0.772, 0.003), (0.811, 0.002),
           (0.795, 0.001), (0.814, 0.001), (0.815, 0.002)),
    # The paper notes that RealTabFormer's figure for BU is of another split or version.
    "BU": ((0.864, 0.005), (0.884, 0.005), (0.928, 0.003),
           (0.906, 0.003), (0.908, 0.002), (0.906, 0.002)),
    "CA": ((0.752, 0.001), (0.525, 0.004), (0.808, 0.003),
           (0.836, 0.002), (0.838, 0.002), (0.857, 0.001)),
    "CAR": ((0.717, 0.001), (0.733, 0.001), None, (0.737, 0.001), (0.738, 0.001), (0.738, 0.001)),
    "CH": ((0.732, 0.006), (0.702, 0.012), None, (0.755, 0.006), (0.741, 0.005), (0.740, 0.009)),
    "DI": ((0.714, 0.039), (0.734, 0.020), (0.732, 0.027),
           (0.740, 0.020), (0.769, 0.018), (0.785, 0.013)),
    "FB": ((0.685, 0.003), (0.509, 0.011), (0.771, 0.004),
           (0.713, 0.002), (0.798, 0.002), (0.837, 0.001)),
    "GE": ((0.434, 0.006), (0.406, 0.009), None, (0.597, 0.006), (0.605, 0.008), (0.636, 0.007)),
    "HI": ((0.638, 0.003), (0.664, 0.002), None, (0.722, 0.001), (0.727, 0.001), (0.724, 0.001)),
    "HO": ((0.493, 0.006), (0.504, 0.005), None, (0.677, 0.010), (0.619, 0.004), (0.662, 0.003)),
    "IN": ((0.784, 0.010), (0.797, 0.005), None, (0.809, 0.002), (0.811, 0.003), (0.814, 0.001)),
    "KI": ((0.824, 0.003), (0.444, 0.014), None, (0.833, 0.014), (0.876, 0.011), (0.907, 0.002)),
    "MI": ((0.912, 0.001), (0.892, 0.002), None, (0.936, 0.001), (0.938, 0.001), (0.934, 0.000)),
    "WI": ((0.501, 0.012), (0.798, 0.021), None, (0.904, 0.009), (0.881, 0.009), (0.898, 0.006)),
}  # fmt: skip
MLE = {
    code: {
        method: score for method, score in zip(METHODS, scores, strict=True) if score is not None
    }
    for code, scores in _TABLE_1.items()
}

# Table 2: median distance to the closest record (DCR), and MLE of the same rows.
DCR = {
    "AB": {"TabDDPM": (0.050, 0.550), "TabMT": (0.249, 0.533)},
    "AD": {"TabDDPM": (0.104, 0.795), "TabMT": (1.01, 0.811)},
    "BU": {"TabDDPM": (0.143, 0.906), "TabMT": (0.165, 0.908)},
    "CA": {"TabDDPM": (0.041, 0.836), "TabMT": (0.117, 0.832)},
    "CAR": {"TabDDPM": (0.012, 0.737), "TabMT": (0.041, 0.737)},
    "CH": {"TabDDPM": (0.157, 0.755), "TabMT": (0.281, 0.758)},
    "DI": {"TabDDPM": (0.204, 0.740), "TabMT": (0.243, 0.740)},
    "FB": {"TabDDPM": (0.112, 0.713), "TabMT": (0.252, 0.787)},
    "GE": {"TabDDPM": (0.059, 0.597), "TabMT": (0.234, 0.599)},
    "HI": {"TabDDPM": (0.449, 0.722), "TabMT": (0.483, 0.727)},
    "HO": {"TabDDPM": (0.086, 0.677), "TabMT": (0.151, 0.607)},
    "IN": {"TabDDPM": (0.041, 0.809), "TabMT": (0.061, 0.816)},
    "KI": {"TabDDPM": (0.189, 0.833), "TabMT": (0.335, 0.868)},
    "MI": {"TabDDPM": (0.022, 0.936), "TabMT": (0.026, 0.936)},
    "WI": {"TabDDPM": (0.016, 0.904), "TabMT": (0.063, 0.881)},
}

# Appendix, the table of DCR beside CTabGAN+: DCR and MLE. For BU it prints another MLE of CTabGAN+
# than table 1, and for FB another point of TabMT than table 2.
DCR_CTABGAN = {
    "AB": {"CTabGAN+": (0.075, 0.467), "TabMT": (0.249, 0.533)},
    "AD": {"CTabGAN+": (0.119, 0.772), "TabMT": (1.01, 0.811)},
    "BU": {"CTabGAN+": (0.164, 0.864), "TabMT": (0.165, 0.908)},
    "CA": {"CTabGAN+": (0.056, 0.525), "TabMT": (0.117, 0.832)},
    "CAR": {"CTabGAN+": (0.012, 0.733), "TabMT": (0.041, 0.737)},
    "CH": {"CTabGAN+": (0.212, 0.702), "TabMT": (0.281, 0.758)},
    "DI": {"CTabGAN+": (0.196, 0.734), "TabMT": (0.243, 0.740)},
    "FB": {"CTabGAN+": (0.427, 0.509), "TabMT": (0.429, 0.566)},
}

# Appendix, the table of MLE beside STaSY; its TabMT column is that of table 1.
MLE_STASY = {
    "AB": 0.482,
    "AD": 0.790,
    "BU": 0.881,
    "CA": 0.762,
    "CAR": 0.725,
    "CH": 0.738,
    "DI": 0.727,
}

# Table 3: MLE of TabMT with 25 % of the values missing, and the difference to none missing.
MISSING = {"AD": {"mle": 0.813, "delta": -0.001}, "KI": {"mle": 0.868, "delta": -0.008}}

# Table 5: precision, recall and diversity on CIDDS-001 in percent.
NETFLOW = {
    "validation rows": (90.42, 90.58, 100.0),
    "NFGAN": (77.64, 63.32, 46.97),
    "TabMT-S": (82.58, 91.88, 89.81),
    "TabMT-M": (85.77, 91.82, 90.56),
    "TabMT-L": (88.10, 91.12, 99.43),
}

# Table 6: the share of generated flows that violate each invariant.
INVARIANTS = {
    "TCP Flags": {"NFGAN": 2.33e-3, "TabMT-S": 4.63e-4, "TabMT-M": 2.16e-4, "TabMT-L": 6.54e-6},
    "Private IPs": {"NFGAN": 2.00e-4, "TabMT-S": 7.25e-5, "TabMT-M": 2.67e-5, "TabMT-L": 1.14e-5},
    "TCP Port": {"NFGAN": 3.00e-4, "TabMT-S": 9.32e-5, "TabMT-M": 3.94e-5, "TabMT-L": 1.47e-5},
    "DNS": {"NFGAN": 1.60e-3, "TabMT-S": 2.34e-3, "TabMT-M": 1.56e-3, "TabMT-L": 2.05e-4},
    "Valid Values": {"NFGAN": 2.00e-3, "TabMT-S": 0.0, "TabMT-M": 0.0, "TabMT-L": 0.0},
    "NetBios": {"NFGAN": 7.43e-1, "TabMT-S": 4.73e-3, "TabMT-M": 4.64e-3, "TabMT-L": 1.27e-3},
    "Packet Ratios": {"NFGAN": 5.10e-3, "TabMT-S": 2.28e-3, "TabMT-M": 1.79e-3, "TabMT-L": 1.16e-3},
}
