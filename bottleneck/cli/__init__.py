"""The command line: parse, call, print, exit. The only package that prints or ends the process."""
