"""The numbers of one tensor: how many values are bad, and what the good ones look like."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Numbers:
    """One tensor, measured once. `min`, `max`, `mean` and `norm` speak of its finite values only;
    they are None when it has none, or when its dtype has no order (complex: of absolute values)."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    count: int
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    norm: float | None = None
    name: str | None = None

    @property
    def finite(self) -> bool:
        return self.nan == 0 and self.posinf == 0 and self.neginf == 0

    @property
    def kind(self) -> str | None:
        """ "nan" when any value is NaN, else "inf" when any is infinite, else None."""
        if self.nan:
            return "nan"
        return "inf" if self.posinf or self.neginf else None
