"""python -m bench.peers NAME main.py [FOLDER]: a script under one tool, which may write into the folder."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from bench.peers import TOOLS
from bench.peers.launching import launch


def main(arguments: list[str]) -> int:
    if len(arguments) not in (2, 3) or arguments[0] not in TOOLS:
        print(
            f"usage: python -m bench.peers NAME main.py [FOLDER]\nNAME: {', '.join(TOOLS)}", file=sys.stderr
        )
        return 2
    tool, script, *given = arguments
    with tempfile.TemporaryDirectory() as own:
        folder = Path(given[0] if given else own)
        ended = launch(TOOLS[tool], Path(script), folder)
        Path(folder, f"launched-{os.environ.get('RANK', 0)}.json").write_text(json.dumps(ended))
    return int(ended["code"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
