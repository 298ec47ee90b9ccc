"""Checks of the machine and of the installed packages."""
