"""One file per framework: how its programs are watched."""
