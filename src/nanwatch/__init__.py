"""nanwatch ends NaN hunts."""
