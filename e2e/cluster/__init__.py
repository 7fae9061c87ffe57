"""A Kubernetes cluster for tests, made of namespaces on this machine: `./dev cluster`."""
