"""Reading a run folder, and repro.py in it, the birth op alone."""

SENTENCES: dict[str, tuple[str, str]] = {
    "read.no_incident": (
        "{path}: no such incident. A folder with an incident.json was expected, for example "
        "nanwatch-runs/…/incidents/0001",
        "{path}：没有这个事故记录。这里需要包含 incident.json 的目录，例如 nanwatch-runs/…/incidents/0001",
    ),
    "read.not_json": (
        "{path}: not valid JSON ({why}). An incident.json written by nanwatch was expected.",
        "{path}：不是合法的 JSON（{why}）。这里需要由 nanwatch 写出的 incident.json。",
    ),
    "read.wrong_schema": (
        "{path}: schema {found}, this nanwatch reads schema {expected}. Update nanwatch, then read it again.",
        "{path}：schema 为 {found}，当前版本的 nanwatch 只能读取 schema {expected}。请升级 nanwatch 后重试。",
    ),
    "read.wrong_field": (
        "{path}: {field} is {found}, expected one of: {expected}",
        "{path}：{field} 的值为 {found}，应为以下之一：{expected}",
    ),
    "read.wrong_shape": (
        "{path}: not an incident ({why}). An incident.json written by nanwatch was expected.",
        "{path}：不是事故记录（{why}）。这里需要由 nanwatch 写出的 incident.json。",
    ),
    "repro.title": (
        "The op where the {kind} was born, alone, with the operands it had.",
        "产生 {kind} 的 op，单独运行，使用当时的操作数。",
    ),
    "repro.usage": ("Run it with: python {file}", "运行方式：python {file}"),
    "repro.seen": ("The same kind of value is seen again: {kind}.", "再次出现同类的值：{kind}。"),
    "repro.not_seen": (
        "No {kind} this time: the outputs differ from those of the incident.",
        "这次没有出现 {kind}：输出与事故发生时不同。",
    ),
    "repro.failed": ("The op cannot be run here:", "无法在本机运行该 op："),
    "repro.no_op": (
        "torch.ops has no {op} here: import the library that registers it at the top of this file.",
        "此处的 torch.ops 中没有 {op}：请在本文件开头 import 注册它的库。",
    ),
    "repro.other_device": ("not on this machine, the CPU is used:", "本机没有该设备，改用 CPU："),
    "repro.opaque": (
        "this argument could not be recorded and is None here: {what}",
        "该参数无法记录，此处以 None 代替：{what}",
    ),
    "repro.input": ("in", "输入"),
    "repro.output": ("out", "输出"),
    "repro.nonfinite": ("non-finite", "非有限值"),
}
