"""Recipes: where frameworks keep what can be cut. One file a framework; `docs/recipes.md` says how to write one."""
