"""The labels and annotations that are read, ours and others', and what a cluster's operator may settle about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuyard.kube.objects import GRANTED_GPUS
from gpuyard.worlds.kubernetes.asking.levels import DEFAULT_LEVELS, Levels, meant
from gpuyard.worlds.kubernetes.asking.volumes import NOTHING_SEEN, Storage

OURS = "gpuyard.dev/"
POOL = OURS + "pool"
QUEUE = OURS + "queue"
CLASS = OURS + "class"
TIME_LIMIT = OURS + "time-limit"
PREEMPTIBLE = OURS + "preemptible"
MODELS = OURS + "models"
GANG = OURS + "gang"
GANG_TASKS = OURS + "gang-tasks"
GANG_MIN = OURS + "gang-min"
ARRAY = OURS + "array"
"""On a Job's pods that are no gang, though all of them may run at once: each is a job by itself."""
REQUIRED_LEVEL = OURS + "topology-required"
PREFERRED_LEVEL = OURS + "topology-preferred"
FRACTION = OURS + "gpu-fraction"
GPU_MEMORY = OURS + "gpu-memory"
TASK = OURS + "task"
"""Which member of its gang a pod is; written with its Binding."""
SUSPENDED = OURS + "suspended"
"""On an owner that we have suspended: why, since when, what its pods were; it goes when the owner is resumed."""
RESIZABLE = OURS + "resizable"
"""On an Indexed Job or its pods: its `parallelism` and `completions` may be changed together, down to its minimum."""
FULL_SIZE = OURS + "full-size"
"""On a Job that was made smaller to give back extras: how many it had at first; it goes when it has them again."""
ENDED = OURS + "ended"
"""On an owner that we have ended for good, and why."""
DEADLINE = OURS + "active-deadline-seconds"
"""On a Job whose deadline was shortened by what it had used of it when we suspended it: what it was at first."""
DRAIN = OURS + "drain"
"""On a node that is cordoned: it is to be emptied too; by whom, why, and whether also those with a right to stay go."""
JOB = OURS + "job"
"""The name by which a pod's gang goes with us; written with its Binding, for people, where it is not the pod's own."""
GPUS = GRANTED_GPUS
"""On a pod the UUIDs it was given; as a label that every node is seen to bear, the resource its GPUs are had by."""

STAY = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""For autoscalers, on members of gangs: a node that is removed for being little used would stop all of the gang."""

SCHEDULERS_OWN = (JOB, TASK, GPUS, SUSPENDED, FULL_SIZE, ENDED, DEADLINE)
"""Read back as our own memory: nobody else may write them on pods and owners (`manifests/policies.yaml`)."""

KAI_FRACTION, KAI_MEMORY = "gpu-fraction", "gpu-memory"
KUEUE_REQUIRED = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"

WHOLE_GPUS = ("nvidia.com/gpu", "amd.com/gpu")
SHARED_GPU = "nvidia.com/gpu.shared"
MIG_PREFIX = "nvidia.com/mig-"
DIVIDED_GPU = "nvidia.com/gpu in parts (nvidia.com/gpu.replicas)"
"""What nodes have that divide their devices and call the parts `nvidia.com/gpu` all the same; not a resource's name."""
PRODUCT, REPLICAS, SHARING = "nvidia.com/gpu.product", "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy"


@dataclass(frozen=True, slots=True)
class ReadingSettings:
    """What the operator of a cluster settled, as far as reading its objects needs it."""

    scheduler_names: tuple[str, ...] = ("gpuyard",)
    levels: Levels = DEFAULT_LEVELS
    """Levels above the node, outermost first, each with the labels of nodes that tell its domain."""
    borne: frozenset[str] = frozenset()
    """Levels of which some node has a domain."""
    queues: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Queues with the namespaces that may use them; none named: all. Without any queue there is `default` alone."""
    has_queues: bool = False
    """Whether the cluster has queues of its own, be it none that could be used."""
    namespace_queues: Mapping[str, str] = field(default_factory=dict)
    """The queue of a namespace whose pods name none."""
    default_queue: str = "default"
    label_keys: frozenset[str] = frozenset()
    """Labels of pods that selectors of any pod mention (`company.label_keys`): by these they are known to others."""
    storage: Storage = NOTHING_SEEN
    fractions: bool = False
    """Whether parts of a GPU can be had: somebody on the nodes must hold tasks to their part."""
    replicas: int = 1
    """Into how many `nvidia.com/gpu.shared` each device is divided, as nodes tell it."""

    def level(self, key: str) -> str:
        """The level that a label, or its own name, means; "" if nobody settled it."""
        return meant(key, self.levels)


DEFAULTS = ReadingSettings()
