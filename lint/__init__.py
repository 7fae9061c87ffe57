"""Lint as a test: the rules of this project that a program can check. `python3 -m lint` runs them all."""
