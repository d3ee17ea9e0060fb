"""bad-hyperparameter: eps=0, a rate that is not finite, beta=1, temperature 0."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from typing import Any

import torch

from nanwatch.explain.birth import BirthOp
from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.history import rise_of, uphill_rate
from nanwatch.explain.lineage import Node
from nanwatch.explain.mechanism import DIVIDE_BY_ZERO, OVERFLOW, OVERFLOWS
from nanwatch.explain.remedies import offer
from nanwatch.explain.state import born_at, optimizer_of, short
from nanwatch.explain.text import Text
from nanwatch.explain.twin import update_of
from nanwatch.records import Remedy
from nanwatch.replay.op_facts import output_tensors
from nanwatch.replay.tracer import measurable

PAGE = Page(
    Text("Bad hyperparameter", "超参数有问题"),
    Text(
        "A number that somebody chose, or that a schedule made, cannot be used: an eps of 0 under a root or "
        "in a divisor, a learning rate that is NaN, infinite, astronomically large or below zero, a beta "
        "of 1 (the bias correction divides by 1 - beta^t), a temperature of 0.",
        "某个人为选定或由调度产生的数不可用：根号下或除数中的 eps 为 0，学习率为 NaN、无穷、大得离谱或小于"
        "零，beta 等于 1（偏差校正要除以 1 - beta^t），温度为 0。",
    ),
    Text(
        "The value that was used, and the same op or update with an ordinary value runs finite.",
        "实际使用的那个值；换成普通的值，同一个算子或同一次更新结果有限。",
    ),
    Text(
        "Use a value in the usual range: eps 1e-8 (1e-5 in norms, 1e-4 in half precision), betas below 1, "
        "temperature at least 1e-2 or greedy decoding; let schedules end where training ends.",
        "使用常规范围内的值：eps 取 1e-8（归一化层 1e-5，半精度 1e-4），beta 小于 1，温度不低于 1e-2 或改用"
        "贪心解码；让调度在训练结束处终止。",
    ),
    ("opt_adam_eps_zero", "opt_annealed_averages", "opt_lr_schedule_overflow", "fwd_layernorm_eps_zero"),
)
NOT_FINITE = Text("{name} of the optimizer is {value}.", "优化器的 {name} 为 {value}。")
ONE = Text(
    "{name} of the optimizer is {value}: its bias correction divides by 1 - beta^t, which is 0.",
    "优化器的 {name} 为 {value}：偏差校正要除以 1 - beta^t，而它等于 0。",
)
EPS = Text(
    "eps of the optimizer is {value}: where a gradient has always been 0, the update is 0 / 0.",
    "优化器的 eps 为 {value}：凡是梯度一直为 0 的地方，更新就是 0 / 0。",
)
RATE = Text(
    "lr is {value}: a gradient of {gradient} times that is beyond what {dtype} holds.",
    "lr 为 {value}：大小为 {gradient} 的梯度乘以它就超出了 {dtype} 的范围。",
)
UPHILL = Text(
    "lr is {value}: with a rate below zero each update goes up the loss, which rose from {first:.3g} at step "
    "{since} to {last:.3g}.",
    "lr 为 {value}：学习率小于零时每次更新都让损失上升，它从第 {since} 步的 {first:.3g} 升到了 {last:.3g}。",
)
OP_EPS = Text(
    "{op} was called with eps={value}, and a row whose variance is 0; with eps={usual} the op is finite.",
    "{op} 使用的 eps={value}，而某一行的方差为 0；取 eps={usual} 时该算子结果有限。",
)
ADDED = Text(
    "The divisor is protected by adding {value}, at {line}: that protects nothing.",
    "除数靠加上 {value}（{line}）来保护：这起不到任何保护作用。",
)
NUMBER = Text(
    "{op} at {line} divides by the plain number {value}.",
    "{op}（{line}）除以的是一个普通数 {value}。",
)
NO_NUMBER = Text(
    "{op} at {line} was given the plain number {value}, which the program has from elsewhere.",
    "{op}（{line}）得到的普通数就是 {value}，它来自程序的别处。",
)
SAME_SETTING = Text("the module has it as the attribute {name}", "模块的属性 {name} 就是这个值")
FINE_WITH = Text(
    "the update with {name}={value} gives finite weights", "取 {name}={value} 时更新得到有限的权重"
)
USUAL_EPS = 1e-5
LARGE_RATE = 1e4
"""Larger than any rate that trains."""


def weigh(case: Case) -> Claim | Against | None:
    if case.phase in ("optimizer", "weights") or case.trouble.seen_in == "hyperparameter":
        return _of_optimizer(case)
    uphill = _uphill(case)
    if uphill is not None or case.birth is None or case.phase == "backward":
        return uphill
    return (
        _no_number(case, case.birth)
        or _eps_of_op(case.birth)
        or _divided_by_number(case, case.birth)
        or _useless_eps(case, case.birth)
    )


# Of the optimizer


def _of_optimizer(case: Case) -> Claim | None:
    optimizer = optimizer_of(case)
    if optimizer is None:
        return None
    numbers = list(_numbers(optimizer))
    for name, value in numbers:
        if not math.isfinite(value):
            return Claim("proved", NOT_FINITE.say(name=name, value=value), (), 3.0)
    if case.phase != "optimizer" or case.birth is None:
        return None
    return _beta_of_one(case, optimizer, numbers) or _no_eps(case, optimizer, numbers) or _rate(case, numbers)


def _numbers(optimizer: Any) -> Iterator[tuple[str, float]]:
    """The settings of the groups that are numbers."""
    for group in optimizer.param_groups:
        for name, value in group.items():
            if name == "params" or isinstance(value, bool):
                continue
            several = isinstance(value, (tuple, list))
            for i, item in enumerate(value if several else (value,)):
                number = _number(item)
                if number is not None:
                    yield (f"{name}[{i}]" if several else str(name)), number


def _number(item: Any) -> float | None:
    if isinstance(item, torch.Tensor):
        return float(item) if item.numel() == 1 and measurable(item) else None
    return float(item) if isinstance(item, (int, float)) and not isinstance(item, bool) else None


def _beta_of_one(case: Case, optimizer: Any, numbers: list[tuple[str, float]]) -> Claim | None:
    """With averages that never forget, their correction is a division by nothing."""
    bad = next(((n, v) for n, v in numbers if n.startswith("betas") and v >= 1.0), None)
    if bad is None:
        return None
    betas = tuple(min(b, 0.9) for b in optimizer.param_groups[0]["betas"])
    fine = update_of(optimizer, True, changes={"betas": betas})
    evidence = (FINE_WITH.say(name="betas", value=betas),) if fine else ()
    return Claim(
        "proved" if fine is not False else "likely", ONE.say(name=bad[0], value=bad[1]), evidence, 3.0
    )


def _no_eps(case: Case, optimizer: Any, numbers: list[tuple[str, float]]) -> Claim | None:
    eps = [v for n, v in numbers if n.startswith("eps")]
    if not eps or min(eps) > 0 or case.mechanism.kind not in (DIVIDE_BY_ZERO, "unknown"):
        return None
    given = optimizer.param_groups[0].get("eps")
    usual: Any = tuple(1e-8 for _ in given) if isinstance(given, tuple) else 1e-8
    fine = update_of(optimizer, True, changes={"eps": usual})
    evidence = (FINE_WITH.say(name="eps", value=usual),) if fine else ()
    return Claim("proved" if fine is not False else "likely", EPS.say(value=min(eps)), evidence, 3.0)


def _rate(case: Case, numbers: list[tuple[str, float]]) -> Claim | None:
    """A rate so large that an ordinary gradient leaves the range of the dtype."""
    rate = max((abs(v) for n, v in numbers if n == "lr"), default=0.0)
    birth = case.birth
    if birth is None or rate < LARGE_RATE or case.mechanism.kind != OVERFLOW or birth.dtype is None:
        return None
    sizes = [float(t.detach().double().abs().max()) for t in _floats(birth) if t.numel()]
    if not sizes or max(sizes) > math.sqrt(torch.finfo(birth.dtype).max):
        return None
    dtype = str(birth.dtype).removeprefix("torch.")
    return Claim("proved", RATE.say(value=short(rate), gradient=short(max(sizes)), dtype=dtype), (), 3.0)


def _uphill(case: Case) -> Claim | None:
    rate, rise = uphill_rate(case), rise_of(case.history)
    if rate is None or rise is None or not rise.clear or case.mechanism.kind not in OVERFLOWS:
        return None
    why = UPHILL.say(value=short(rate), first=rise.first, since=rise.since, last=rise.last)
    return Claim("likely", why, (), 5.0)


def _floats(birth: BirthOp) -> list[torch.Tensor]:
    found = output_tensors(list(birth.arguments.values()))
    return [t for t in found if t.is_floating_point() and measurable(t)]


# Of an op


def _no_number(case: Case, birth: BirthOp) -> Claim | None:
    """A weight of a loss, a scale."""
    value = birth.given_no_number
    if value is None:
        return None
    return Claim("likely", NO_NUMBER.say(op=birth.name, line=born_at(case), value=value), (), 3.0)


def _eps_of_op(birth: BirthOp) -> Claim | None:
    """A norm that was told to use an eps of 0."""
    eps = birth.number("eps")
    if eps is None or eps > 1e-30 or birth.op.call is None:
        return None
    function, args, kwargs = birth.op.call
    place = [a.name for a in function._schema.arguments].index("eps")
    args = (*args[:place], USUAL_EPS, *args[place + 1 :]) if place < len(args) else args
    kwargs = {**kwargs, "eps": USUAL_EPS} if "eps" in kwargs else kwargs
    try:
        with torch.no_grad():
            made = [t for t in output_tensors(function(*args, **kwargs)) if measurable(t)]
    except Exception:
        return None
    if not all(bool(torch.isfinite(t).all()) for t in made):
        return None
    return Claim("proved", OP_EPS.say(op=birth.name, value=eps, usual=USUAL_EPS), (), 3.0)


def _divided_by_number(case: Case, birth: BirthOp) -> Claim | None:
    """A divisor that is no tensor but a number of the program: a temperature, a scale. A count would be
    whole."""
    given = birth.arguments.get("other")
    if case.mechanism.kind != DIVIDE_BY_ZERO or not isinstance(given, float) or isinstance(given, bool):
        return None
    if _computed_on_the_line(case.located.birth.code):
        return None
    why = NUMBER.say(op=birth.name, line=born_at(case), value=given)
    names = [
        name
        for module in birth.op.modules
        for name, value in vars(module).items()
        if isinstance(value, float) and value == given and not name.startswith("_")
    ]
    evidence = tuple(SAME_SETTING.say(name=name) for name in names[:1])
    return Claim("likely" if _came_from_tensor(case) and not names else "proved", why, evidence, 3.0)


def _computed_on_the_line(code: str) -> bool:
    """Whether a divisor of the line is computed there (`1 - decay**n`, `float(m.sum())`), not only named."""
    for text in (code, code.rstrip(":") + ": pass", f"def f():\n {code}"):
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        nodes = list(ast.walk(tree))
        divisors = [n.right for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
        divisors += [n.value for n in nodes if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Div)]
        divisors += [n.args[-1] for n in nodes if isinstance(n, ast.Call) and n.args and _divides(n.func)]
        return any(
            not isinstance(d, (ast.Name, ast.Attribute, ast.Constant, ast.Subscript)) for d in divisors
        )
    return False


def _divides(function: ast.expr) -> bool:
    """A method or function of torch that divides by its last argument."""
    return isinstance(function, ast.Attribute) and function.attr in ("div", "div_", "divide", "true_divide")


def _came_from_tensor(case: Case) -> bool:
    """Whether a tensor of the step may have been read into Python as a zero."""
    for tensor in (*case.tape.used.values(), *case.tape.made.values()):
        if (
            tensor.numel() == 1
            and not tensor.is_complex()
            and tensor.device.type != "meta"
            and float(tensor.detach()) == 0
        ):
            return True
    return any(n.returned == 0 for n in case.lineage.nodes.values())


def _useless_eps(case: Case, birth: BirthOp) -> Claim | None:
    """An eps of 0 that is added on the way to the divisor: `x / (norm + eps)`, `x / (var + eps).sqrt()`."""
    if case.mechanism.kind != DIVIDE_BY_ZERO or not case.mechanism.operand:
        return None
    lineage = case.lineage
    node = lineage.node_of(birth.op)
    maker = None if node is None else lineage.maker(node, case.mechanism.operand)
    for each in [] if maker is None else [maker, *lineage.upstream(maker, 2)]:
        if each.base in ("add", "add_scalar") and _adds_nothing(each):
            line = born_at(case)
            return Claim("proved", ADDED.say(value=0.0, line=line), (), 3.0)
    return None


def _adds_nothing(node: Node) -> bool:
    added = node.arguments.get("other")
    return isinstance(added, float) and added == 0.0


def remedies(case: Case) -> list[Remedy]:
    if _uphill(case) is not None:
        return offer(case, "fix-hyperparameter", "roll-back")
    if case.birth is not None and case.birth.given_no_number is not None:
        return offer(case, "fix-hyperparameter")
    rate = ("lower-learning-rate",) if case.phase == "optimizer" else ()
    return offer(case, "fix-hyperparameter", "larger-eps", *rate)
