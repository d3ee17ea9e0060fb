"""A sentence of the catalogue with its values put in."""

from __future__ import annotations

from nanwatch.messages.catalogue import CATALOGUE
from nanwatch.messages.language import chosen_language


def say(message: str, /, **values: object) -> str:
    """The sentence `message` in the language of this process."""
    return say_in(chosen_language(), message, **values)


def say_in(language: str, message: str, /, **values: object) -> str:
    """The sentence `message` in `language` ("en" or "zh")."""
    english, chinese = CATALOGUE[message]
    return (chinese if language == "zh" else english).format(**values)
