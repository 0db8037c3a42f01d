"""GPUYard: GPU orchestration with one brain and three worlds.

Nothing is imported here, so that `import gpuyard` costs nothing; callers name the module they want.
"""

__version__ = "0.1.0"
