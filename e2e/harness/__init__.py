"""Shared by the end-to-end tests, the demos and the benchmarks: storage, processes, CSI calls, leaks."""
