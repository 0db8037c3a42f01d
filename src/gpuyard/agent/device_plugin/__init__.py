"""This machine's GPUs for a kubelet: device plugin API v1beta1 over Unix sockets.

`plugin` knows which GPUs there are and which belong together, `wire` speaks gRPC, `registering` finds the kubelet again
when it starts anew. The messages are made from `v1beta1.proto` (its first lines say how), and checked in.
"""
