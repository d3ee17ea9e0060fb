"""What a person or another program reads: the terminal, the run folder, repro.py. Never imports torch."""
