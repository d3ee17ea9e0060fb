"""Puts what the other scripts of bench/ have printed into the documents, so that no figure is typed by hand.

    python -m bench.overhead | tee bench/results/overhead_cpu.txt      a run, kept as it was printed
    python -m bench.figures                                            all kept runs into the documents
    python -m bench.figures --check                                    whether they are in there as they are

A document names the run between two marks: `<!-- figures: overhead_cpu.txt -->` and `<!-- /figures -->`.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
DOCUMENTS = (ROOT / "README.md", ROOT / "README.zh.md", ROOT / "docs" / "benchmark.md")
MARKED = re.compile(r"(<!-- figures: (\S+) -->\n).*?(<!-- /figures -->)", re.DOTALL)


def with_figures(text: str, results: Path = RESULTS) -> str:
    """The document's text, with what lies in `results` between its marks."""
    return MARKED.sub(lambda found: found[1] + block(results / found[2]) + found[3], text)


def block(file: Path) -> str:
    """Markdown as it is, anything else as it was printed."""
    printed = file.read_text().strip("\n")
    return f"{printed}\n" if file.suffix == ".md" else f"```text\n{printed}\n```\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if something would")
    options = parser.parse_args()
    changed = []
    for document in DOCUMENTS:
        was = document.read_text()
        try:
            now = with_figures(was)
        except FileNotFoundError as error:
            print(f"{document.name} shows {error.filename}, which is not there", file=sys.stderr)
            return 2
        if now != was:
            changed.append(document.name)
            if not options.check:
                document.write_text(now)
    print(f"{'to be changed' if options.check else 'changed'}: {', '.join(changed) or 'nothing'}")
    return 1 if changed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
