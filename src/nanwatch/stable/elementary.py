"""log, sqrt, division, powers and inverse trigonometry with a finite value and gradient where they break.

Everywhere else they are the plain op, bit for bit. At and beyond the singular point the value is the one that
the docstring names, the gradient 0. A NaN that comes in goes out: these blocks make none and hide none.
They guard the singular point, not the range: a true value too large for the dtype is still inf.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nanwatch.stable.arguments import require_floating, require_number
from nanwatch.stable.limits import common_dtype, log_of_zero, scale_of, smallest_with_inverse, widened


def log(x: Tensor, floor: float | None = None) -> Tensor:
    """log(x); for x <= 0 the logarithm of the smallest positive number of the dtype.

    The gradient is 1/x, and 0 where 1/x does not fit the dtype. With `floor`: log(max(x, floor)).
    """
    require_floating("log", x=x)
    if floor is None:
        return guarded_log(x, x.dtype).to(x.dtype)
    require_number("log", "floor", floor, above=0.0, example=1e-6)
    floor = max(floor, smallest_with_inverse(x.dtype))
    below = x < floor
    return x.masked_fill(below, 1.0).log().masked_fill(below, math.log(floor)).to(x.dtype)


def guarded_log(x: Tensor, dtype: torch.dtype) -> Tensor:
    """log(x) with the guards of `dtype`, where x may be held in a wider one."""
    nothing = x <= 0
    flat = nothing | (x < smallest_with_inverse(dtype))
    value = x.detach().masked_fill(nothing, 1.0).log().masked_fill(nothing, log_of_zero(dtype))
    return torch.where(flat, value, x.masked_fill(flat, 1.0).log())


def log1mexp(x: Tensor) -> Tensor:
    """log(1 - exp(x)) for x < 0, exact near 0 and far from it; for x >= 0 what `log` gives for 0."""
    require_floating("log1mexp", x=x)
    wide = widened(x)
    near = wide > -math.log(2.0)
    close = guarded_log(-torch.expm1(wide.masked_fill(~near, -0.5).clamp(max=0.0)), x.dtype)
    far = torch.log1p(-torch.exp(wide.masked_fill(near, -1.0)))
    return torch.where(near, close, far).to(x.dtype)


def log_sigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x)) without the sigmoid, which is 0 from about -104 on in float32 and -17 in float16."""
    require_floating("log_sigmoid", x=x)
    return torch.nn.functional.logsigmoid(x).to(x.dtype)


def sqrt(x: Tensor) -> Tensor:
    """sqrt(x); 0 for x <= 0, also for the small negative numbers that rounding makes of 0."""
    require_floating("sqrt", x=x)
    nothing = x <= 0
    return x.masked_fill(nothing, 1.0).sqrt().masked_fill(nothing, 0.0)


def divide(a: Tensor, b: Tensor, otherwise: float = 0.0, floor: float = 0.0) -> Tensor:
    """a / b; `otherwise` where |b| <= floor.

    The derivative a / b² leaves float16 where |b| < 0.004 sqrt(|a|): give a floor there, or widen first.
    """
    require_floating("divide", a=a, b=b)
    require_number("divide", "floor", floor, least=0.0, example=1e-6)
    nothing = b.abs() <= floor
    quotient = torch.where(nothing, 0.0, a) / torch.where(nothing, 1.0, b)
    return torch.where(nothing, otherwise, quotient)


def pow(x: Tensor, exponent: float | Tensor) -> Tensor:
    """x ** exponent; 0 for a negative x under a broken exponent, and for 0 under a negative one."""
    require_floating("pow", x=x)
    if not isinstance(exponent, Tensor):
        return _power(x, exponent, _singular(x, exponent))
    require_floating("pow", exponent=exponent)
    fixed = exponent.detach()
    result = _power(x, fixed, _singular(x, fixed))
    if not exponent.requires_grad:
        return result
    # d/dexponent is x**exponent * log(x): only a positive x may have a part in it.
    positive = x > 0
    power = torch.pow(torch.where(positive, x, 1.0), exponent).to(result.dtype)
    return torch.where(positive, power, result)


def _power(x: Tensor, exponent: float | Tensor, singular: Tensor) -> Tensor:
    dtype = common_dtype(x, exponent) if isinstance(exponent, Tensor) else x.dtype
    return torch.where(singular, 0.0, torch.pow(torch.where(singular, 1.0, x), exponent)).to(dtype)


def _singular(x: Tensor, exponent: float | Tensor) -> Tensor:
    """Where x ** exponent, or its derivative in x, is not finite."""
    if isinstance(exponent, Tensor):
        steep = (exponent < 1) & (exponent != 0)
        return ((x < 0) & (exponent != exponent.trunc())) | ((x == 0) & steep)
    broken = exponent != math.floor(exponent)
    steep_at_zero = exponent < 1 and exponent != 0
    if broken:
        return x <= 0 if steep_at_zero else x < 0
    return (x == 0) & steep_at_zero


def acos(x: Tensor) -> Tensor:
    """acos(x); 0 for x >= 1 and pi for x <= -1, also where a cosine came out a little beyond."""
    require_floating("acos", x=x)
    high, low = x >= 1, x <= -1
    inner = x.masked_fill(high | low, 0.0).acos().to(x.dtype)
    return inner.masked_fill(high, 0.0).masked_fill(low, math.pi)


def asin(x: Tensor) -> Tensor:
    """asin(x); pi/2 for x >= 1 and -pi/2 for x <= -1."""
    require_floating("asin", x=x)
    high, low = x >= 1, x <= -1
    inner = x.masked_fill(high | low, 0.0).asin().to(x.dtype)
    return inner.masked_fill(high, math.pi / 2).masked_fill(low, -math.pi / 2)


def atan2(y: Tensor, x: Tensor) -> Tensor:
    """atan2(y, x) with the gradient 0 at the origin, and the right one where x² + y² leaves the dtype."""
    require_floating("atan2", y=y, x=x)
    dtype = common_dtype(y, x)
    y, x = widened(y.to(dtype)), widened(x.to(dtype))
    origin = (y == 0) & (x == 0)
    scale = scale_of(torch.maximum(y.detach().abs(), x.detach().abs()))
    angle = torch.atan2(torch.where(origin, 0.0, y / scale), torch.where(origin, 1.0, x / scale))
    return torch.where(origin, torch.atan2(y.detach(), x.detach()), angle).to(dtype)
