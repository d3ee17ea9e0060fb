"""Which language to speak: NANWATCH_LANG, else the locale, else English."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

LANGUAGES = ("en", "zh")
_PROBES = {"en": "", "zh": "训练步骤"}


def chosen_language(environ: Mapping[str, str] | None = None, encoding: str | None = None) -> str:
    """The language of the sentences: "en" or "zh".

    A terminal that cannot show Chinese gets English, since escapes help nobody: `encoding` is what the
    sentence is going to be printed in, by default that of stderr.
    """
    wanted = _wanted(os.environ if environ is None else environ)
    if encoding is None:
        encoding = getattr(sys.stderr, "encoding", None)
    return wanted if _can_show(wanted, encoding) else "en"


def _wanted(environ: Mapping[str, str]) -> str:
    explicit = environ.get("NANWATCH_LANG", "").strip().lower()
    if explicit[:2] in LANGUAGES:
        return explicit[:2]
    # POSIX: the first of these that is set decides, even where it says "C".
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = environ.get(name, "").strip().lower()
        if value:
            return "zh" if value.startswith("zh") else "en"
    return "en"


def _can_show(language: str, encoding: str | None) -> bool:
    try:
        _PROBES[language].encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
