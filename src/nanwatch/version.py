"""The version, a leaf that anybody may import."""

__version__ = "0.1.0"
