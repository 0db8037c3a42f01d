"""The pods of this node: what they were granted, what they really hold, and which of them the kubelet is asking for.

Nothing here decides who gets a GPU. Imports gRPC and the API server's client, so it is loaded only where asked for.
"""
