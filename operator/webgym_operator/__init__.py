"""The Kubernetes operator for WebGymRun resources. Its handlers are not written yet; see the README."""
