"""People settle labels in the browser: the queue, the server on this machine, and what the review has shown."""
