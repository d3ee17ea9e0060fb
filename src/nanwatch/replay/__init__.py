"""Put a step back and run it again under the op tracer; find where the bad value was born."""
