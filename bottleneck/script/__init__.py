"""The whole ladder inside an unchanged training script."""
