"""Makes of measured blocks numbers with intervals, a verdict and advice: pure functions of a measurement."""
