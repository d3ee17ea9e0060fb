"""The report of an incident, and the pages of the causes."""

SENTENCES: dict[str, tuple[str, str]] = {
    "page.causes": ("The causes", "原因一览"),
    "page.made_by": (
        "Made by `nanwatch explain --markdown` from the files in `src/nanwatch/explain/causes/`. A "
        "diagnosis names one "
        "of these, or `unknown`.",
        "由 `nanwatch explain --markdown` 根据 `src/nanwatch/explain/causes/` 中的文件生成。"
        "诊断结果是其中之一，或为 `unknown`。",
    ),
    "page.examples": ("Examples:", "示例："),
    "page.proof": ("Proved by:", "判定依据："),
    "page.cures": ("What helps:", "解决办法："),
    "cli.explain.unreadable": (
        "nanwatch: {path} could not be read ({why}); expected the incident.json of a run of nanwatch.",
        "nanwatch：无法读取 {path}（{why}）；应为 nanwatch 运行产生的 incident.json。",
    ),
    "cli.explain.nothing_there": (
        "nanwatch: {path} is neither a cause nor a run folder with an incident. Did you mean: {near}? "
        "`nanwatch explain` lists the causes.",
        "nanwatch：{path} 既不是原因名，也不是含有事件的运行目录。是否想输入：{near}？"
        "运行 `nanwatch explain` 可列出所有原因。",
    ),
    "cli.explain.no_incident": (
        "nanwatch: the run in {path} has no incident: nothing in it was found to be non-finite.",
        "nanwatch：{path} 中的运行没有任何事件：未发现非有限值。",
    ),
    "report.checklist": ("Checklist", "检查清单"),
    "report.debugging": (
        "Debugging steps, done on this step (✗: look here)",
        "在这一步上做过的调试步骤（✗：问题在此）",
    ),
    "report.causes": ("Causes, the likeliest first", "原因，按可能性排列"),
    "report.remedies": ("What to do, in order", "解决办法，按优先级排列"),
    "report.experiments": ("Experiments", "实验"),
    "report.ruled_out": ("ruled out: {what}", "已排除：{what}"),
    "report.none": ("none", "无"),
}
