"""What an audit found, written for other programs."""
