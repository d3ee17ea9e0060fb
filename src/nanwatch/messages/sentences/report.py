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
    "cli.explain.misspelt": (
        "nanwatch: {path} is neither a cause nor a run folder. Did you mean: {near}? "
        "`nanwatch explain` lists the causes.",
        "nanwatch：{path} 既不是原因名，也不是运行目录。是否想输入：{near}？"
        "运行 `nanwatch explain` 可列出所有原因。",
    ),
    "cli.explain.nothing_there": (
        "nanwatch: {path} is neither a cause nor a run folder. `nanwatch explain` lists the causes; run "
        "folders are in nanwatch-runs/, if `nanwatch run` was given no --dir.",
        "nanwatch：{path} 既不是原因名，也不是运行目录。运行 `nanwatch explain` 可列出所有原因；"
        "若运行时没有给出 --dir，运行目录在 nanwatch-runs/ 中。",
    ),
    "cli.explain.no_run": (
        "nanwatch: the folder {path} is not of a run of nanwatch: it has no run.json. Give the folder that "
        "`nanwatch run` has named, or an incident.json.",
        "nanwatch：目录 {path} 不是 nanwatch 的运行目录：其中没有 run.json。请给出 `nanwatch run` 报告的"
        "目录，或某个 incident.json。",
    ),
    "cli.explain.runs_inside": (
        "nanwatch: {path} holds several runs; name one of them, the latest for example: "
        "nanwatch explain {latest}",
        "nanwatch：{path} 中有多次运行；请指定其中一个，例如最近的：nanwatch explain {latest}",
    ),
    "cli.explain.unknown_option": (
        "nanwatch: unknown option {option}; the list: nanwatch explain --help",
        "nanwatch：未知选项 {option}；完整列表见：nanwatch explain --help",
    ),
    "cli.explain.one_at_a_time": (
        "nanwatch: one cause or folder at a time is explained, {first} and {other} were given; "
        "write: nanwatch explain {first}",
        "nanwatch：一次只能解释一个原因或目录，却给了 {first} 和 {other}；请写：nanwatch explain {first}",
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
