"""Reports: a result as text for people and programs, one module a format, without decisions of their own."""
