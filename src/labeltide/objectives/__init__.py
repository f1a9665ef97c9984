"""Loss corrections for label noise, penalties on Q, and the objective that combines them."""
