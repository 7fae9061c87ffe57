"""What the end-to-end tests, the demo and the benchmark share: storage, processes, CSI calls, and a look at what is left over."""
