"""What nanwatch does about a bad step."""
