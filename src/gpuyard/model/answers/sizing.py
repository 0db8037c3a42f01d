"""What is said to somebody whose size does not divide a node: how many places it and its neighbours have."""

from __future__ import annotations

from dataclasses import dataclass

from gpuyard.model.outside.phrases import agreeing, counted


@dataclass(frozen=True, slots=True)
class Places:
    """So many tasks of so many GPUs fit now, and would if nothing ran."""

    gpus: int
    now: int
    empty: int


@dataclass(frozen=True, slots=True)
class Sizing:
    """The size below that divides a node of so many GPUs, the size asked for, and the one above."""

    width: int
    places: tuple[Places, ...]

    def __str__(self) -> str:
        asked = self.places[1].gpus
        now = ", ".join(f"{each.now} for {each.gpus}" for each in self.places)
        empty = ", ".join(f"{each.empty} for {each.gpus}" for each in self.places)
        left = counted(self.width % asked, "GPU")
        leaves = f"{counted(asked, 'GPU')} {agreeing(asked, 'leaves', 'leave')} {left}"
        return f"{leaves} of a node of {self.width}: places now {now}; on an empty fleet {empty}"
