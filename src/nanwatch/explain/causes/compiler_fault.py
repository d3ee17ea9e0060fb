"""Compiled code gives a non-finite value where the same code, run eagerly, does not."""

from __future__ import annotations

from nanwatch.explain.case import Case
from nanwatch.explain.causes.transient_fault import concerned
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.experiments import eager
from nanwatch.explain.remedies import offer
from nanwatch.explain.text import Text
from nanwatch.records import Remedy

PAGE = Page(
    title=Text("The compiled code is at fault", "编译后的代码有误"),
    meaning=Text(
        "torch.compile, or a backend given to it, made code that does not compute what the program says: an "
        "epsilon or a clamp was optimised away, a stable function was replaced by its textbook formula, an "
        "intermediate result was kept in another precision. The program as it is written gives finite "
        "values.",
        "torch.compile 或其后端生成的代码与程序所写的计算不一致：eps 或 clamp 被优化掉、数值稳定的函数被替换"
        "成教科书公式、中间结果使用了另一种精度。按程序原样运行时，结果是有限的。",
    ),
    proof=Text(
        "The recorded step runs finite as eager code, and the compiled code, called again with the same "
        "inputs, fails again.",
        "所记录的步骤在即时模式下结果有限；而用同样的输入再次调用编译后的代码，又一次失败。",
    ),
    cures=Text(
        "Run this part eagerly (torch.compiler.disable on the function, or without torch.compile) until the "
        "backend is repaired. Find the pass by trying the backends 'eager', 'aot_eager' and 'inductor' in "
        "that order, and report the smallest failing graph.",
        "在后端修复之前，让这一部分以即时模式运行（对该函数使用 torch.compiler.disable，或不用 "
        "torch.compile）。依次尝试后端 'eager'、'aot_eager'、'inductor' 以找出出错的环节，并报告最小的失败计"
        "算图。",
    ),
    examples=("fwd_compiled_contrast", "infer_compiled_angles", "loss_compiled_partition"),
)

WHY = Text(
    "The step is finite as eager code and not finite as compiled code, with the same weights and inputs. "
    "Compiled: {what}.",
    "同样的权重和输入，即时模式下结果有限，编译后的代码则不有限。编译的部分：{what}。",
)
SOMETHING = Text("part of the step", "这一步的一部分")
TWICE = Text("the compiled code was called once more and failed again", "再次调用编译后的代码，又一次失败")
ONCE = Text("the compiled code could not be called once more", "无法再次调用编译后的代码")
DRAWS = Text(
    "the step draws random numbers, and compiled code draws others",
    "这一步使用随机数，而编译后的代码会取到不同的随机数",
)
SAME = Text("eager code fails in the same way", "即时模式下同样失败")
NEITHER = Text("the compiled code does not fail again either", "编译后的代码也没有再次失败")


def weigh(case: Case) -> Claim | Against | None:
    if not eager.applies(case):
        return None
    what = eager.compiled_calls(case)
    if case.reproduced and not (concerned(case) and what):
        return Against(SAME.say()) if what and case.located.by == "replay" else None
    if not concerned(case):
        return None
    outcome = case.outcome("eager")
    if outcome.finite is False:
        return Against(SAME.say()) if what else None
    modes = outcome.value
    if not isinstance(modes, eager.Modes):
        return None
    if modes.compiled_fails is False:
        return Against(NEITHER.say())
    why = WHY.say(what=", ".join(what) or SOMETHING.say())
    if modes.compiled_fails and not modes.draws:
        return Claim("proved", why, (TWICE.say(),), 4.0)
    if modes.compiled_fails:
        return Claim("likely", why, (TWICE.say(), DRAWS.say()), 4.0)
    return Claim("likely" if what else "possible", why, (ONCE.say(),), 4.0) if what else None


def remedies(case: Case) -> list[Remedy]:
    return offer(case, "run-eager")
