"""What tests of several folders share; like all helpers, imported by its full name: `tests.support.clock`."""
