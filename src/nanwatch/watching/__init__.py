"""While the program runs: sentinel, recorder, and the taps through which they follow it."""
