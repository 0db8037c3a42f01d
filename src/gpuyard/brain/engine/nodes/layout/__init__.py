"""How the devices of one node lie: as bit masks, by nearness, and where kubelets insist on NUMA nodes."""
