"""GPUYard beside kube-scheduler on one real API server: pods bound a second, one pod's latency, what 100,000 pods take.

`python -m bench.kube` (or `make bench-kube`) builds the control plane if need be, measures and keeps the results.
"""
