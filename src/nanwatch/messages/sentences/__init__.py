"""The sentences, one file per subject; `messages/catalogue.py` puts them together."""
