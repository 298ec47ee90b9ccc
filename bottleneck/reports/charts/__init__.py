"""Charts as SVG, and files for other viewers."""
