"""Every sentence nanwatch says, in English and Chinese: `say("cli.missing_script", path="train.py", …)`."""

from nanwatch.messages.language import chosen_language
from nanwatch.messages.speech import say, say_in

__all__ = ["chosen_language", "say", "say_in"]
