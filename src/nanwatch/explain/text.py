"""A sentence in both languages of nanwatch. One that exists in only one of them cannot be written."""

from __future__ import annotations

from dataclasses import dataclass

from nanwatch.messages.language import chosen_language


@dataclass(frozen=True)
class Text:
    en: str
    zh: str

    def say(self, **values: object) -> str:
        """In the language of this process, with its values put in."""
        return self.in_language(chosen_language(), **values)

    def in_language(self, language: str, **values: object) -> str:
        sentence = self.zh if language == "zh" else self.en
        return sentence.format(**values) if values else sentence
